// An MCP server with three tools, over Streamable HTTP. It keeps no sessions, so that any of its Pods can answer any request.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type text struct {
	Text string `json:"text" jsonschema:"the text"`
}

type zone struct {
	Zone string `json:"zone" jsonschema:"a time zone such as Europe/Paris"`
}

func says(format string, values ...any) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, values...)}}}, nil, nil
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "reverse", Description: "Reverses a text"},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			var reversed strings.Builder
			for runes := []rune(in.Text); len(runes) > 0; runes = runes[:len(runes)-1] {
				reversed.WriteRune(runes[len(runes)-1])
			}
			return says("%s", reversed.String())
		})
	mcp.AddTool(server, &mcp.Tool{Name: "now", Description: "Tells the time in a zone"},
		func(_ context.Context, _ *mcp.CallToolRequest, in zone) (*mcp.CallToolResult, any, error) {
			where, err := time.LoadLocation(in.Zone)
			if err != nil {
				return nil, nil, err
			}
			return says("%s", time.Now().In(where).Format(time.RFC1123))
		})
	mcp.AddTool(server, &mcp.Tool{Name: "whoami", Description: "Tells the name of the caller"},
		func(_ context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if user := request.Extra.Header.Get("X-Recif-User"); user != "" {
				return says("You are %s.", user)
			}
			return says("You are unknown.")
		})
	return server
}

func main() {
	server := newServer()
	// Requests come from the sidecar on loopback, with the Host of the Service.
	options := &mcp.StreamableHTTPOptions{Stateless: true, DisableLocalhostProtection: true}
	routes := http.NewServeMux()
	routes.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options))
	listener := &http.Server{Addr: ":3000", Handler: routes}

	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		if err := listener.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	<-ended.Done()
	// It takes no new requests, and ends with the last open one: streams that only listen have no end of their own.
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = listener.Shutdown(ending)
}
