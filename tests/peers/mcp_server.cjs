// The reference MCP server with its example tools, over Streamable HTTP: on loopback alone, at PORT or else a free one,
// which the first line says.
const net = require("node:net");
const path = require("node:path");

console.log = () => {};
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, done) {
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, () => {
    process.stdout.write(`${this.address().port}\n`);
    done?.();
  });
};
process.env.PORT ??= "0";
import(path.join(process.env.NODE_PATH, "@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js"));
