// What an operator in Go pays for the same work: controller-runtime sends for each agent what the operator sends.
//
// It renders nothing, checks nothing and reads nothing of an agent but its phase, so that this is the least that a Go operator
// of these phases and children can cost. The bodies come from the benchmark, which read them off an agent that runs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "recif.dev/cleanup"

// Agent is an agent of which nothing is read but its phase.
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              runtime.RawExtension `json:"spec,omitempty"`
	Status            Status               `json:"status,omitempty"`

	// applied says that its Service and Deployment were.
	applied bool
}

// Status is what is read of a status.
type Status struct {
	Phase string `json:"phase,omitempty"`
}

// DeepCopyObject copies an agent.
func (a *Agent) DeepCopyObject() runtime.Object {
	out := &Agent{TypeMeta: a.TypeMeta, Status: a.Status, applied: a.applied}
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	a.Spec.DeepCopyInto(&out.Spec)
	return out
}

// AgentList is a list of agents.
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Agent `json:"items"`
}

// DeepCopyObject copies a list.
func (l *AgentList) DeepCopyObject() runtime.Object {
	out := &AgentList{TypeMeta: l.TypeMeta, Items: make([]Agent, 0, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Agent))
	}
	return out
}

// Template is what is sent for one agent.
type Template struct {
	// Agent is the name of the agent that it was read off.
	Agent string `json:"agent"`
	// Statuses are the statuses, in the order in which they are written.
	Statuses []json.RawMessage `json:"statuses"`
	// Children are the bodies of the applies; the last two wait for the third status.
	Children []json.RawMessage `json:"children"`
}

type reconciler struct {
	client.Client
	template Template
	// latest is what the answer to the last write said of an agent, by its key: the cache may be behind.
	latest sync.Map
}

// Reconcile goes on with an agent until it has to wait for its Deployment.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	agent := &Agent{}
	if err := r.Get(ctx, request.NamespacedName, agent); err != nil || agent.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if latest, known := r.latest.Load(request.NamespacedName); known {
		agent = latest.(*Agent)
	}
	for {
		var err error
		running := len(r.template.Children) - 2
		switch agent.Status.Phase {
		case "", "Pending":
			err = r.status(ctx, agent, 0)
		case "Resolving":
			err = r.status(ctx, agent, 1)
		case "Rendering":
			if err = r.children(ctx, agent, r.template.Children[:running]); err == nil {
				err = r.hold(ctx, agent)
			}
			if err == nil {
				err = r.status(ctx, agent, 2)
			}
		case "Deploying":
			if !agent.applied {
				agent.applied = true
				return ctrl.Result{}, r.children(ctx, agent, r.template.Children[running:])
			}
			deployment := &appsv1.Deployment{}
			if err = r.Get(ctx, request.NamespacedName, deployment); err != nil || deployment.Status.AvailableReplicas == 0 {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			err = r.status(ctx, agent, 3)
		default:
			return ctrl.Result{}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		r.latest.Store(request.NamespacedName, agent)
	}
}

func (r *reconciler) status(ctx context.Context, agent *Agent, step int) error {
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/status/phase","value":%q},{"op":"add","path":"/status","value":%s}]`,
		agent.UID, agent.Status.Phase, r.template.Statuses[step])
	return r.Status().Patch(ctx, agent, client.RawPatch(types.JSONPatchType, []byte(patch)))
}

func (r *reconciler) hold(ctx context.Context, agent *Agent) error {
	patch := fmt.Sprintf(`[{"op":"add","path":"/metadata/finalizers","value":[%q]}]`, finalizer)
	return r.Patch(ctx, agent, client.RawPatch(types.JSONPatchType, []byte(patch)))
}

func (r *reconciler) children(ctx context.Context, agent *Agent, bodies []json.RawMessage) error {
	for _, body := range bodies {
		body = bytes.ReplaceAll(body, []byte(r.template.Agent), []byte(agent.Name))
		body = bytes.ReplaceAll(body, []byte("OWNER-UID"), []byte(agent.UID))
		child := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(body, child); err != nil {
			return err
		}
		object, err := r.Scheme().New(child.GroupVersionKind())
		if err != nil {
			return err
		}
		target := object.(client.Object)
		target.SetName(child.Name)
		target.SetNamespace(agent.Namespace)
		patch := client.RawPatch(types.ApplyPatchType, body)
		if err := r.Patch(ctx, target, patch, client.FieldOwner("recif-operator"), client.ForceOwnership); err != nil {
			return err
		}
	}
	return nil
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r := &reconciler{}
	if err := json.Unmarshal(text, &r.template); err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// As the operator, it is held back by the API server alone.
	config.QPS = -1
	kinds := runtime.NewScheme()
	version := schema.GroupVersion{Group: "agents.recif.dev", Version: "v1"}
	kinds.AddKnownTypes(version, &Agent{}, &AgentList{})
	metav1.AddToGroupVersion(kinds, version)
	if err := errors.Join(corev1.AddToScheme(kinds), appsv1.AddToScheme(kinds)); err != nil {
		return err
	}
	options := ctrl.Options{Scheme: kinds, Metrics: server.Options{BindAddress: "0"}}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	r.Client = manager.GetClient()
	err = ctrl.NewControllerManagedBy(manager).For(&Agent{}).
		Owns(&corev1.ServiceAccount{}).Owns(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Owns(&corev1.Service{}).
		Owns(&appsv1.Deployment{}).WithOptions(controller.Options{MaxConcurrentReconciles: 32}).Complete(r)
	if err != nil {
		return err
	}
	go func() {
		if manager.GetCache().WaitForCacheSync(context.Background()) {
			fmt.Println("ready")
		}
	}()
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: peer TEMPLATE: the file that the benchmark wrote")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
