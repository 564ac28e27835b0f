// Serves fauxqs on loopback (its own command listens everywhere) and counts requests by action: GET /_requests.
import { buildApp } from "fauxqs";

const counts = {};
const add = (name, by) => { counts[name] = (counts[name] ?? 0) + by; };
const app = buildApp({ logger: false });
app.addHook("preHandler", async (request) => {
  const action = (request.headers["x-amz-target"] ?? "").split(".").pop();
  if (!action) return;
  add(action, 1);
  const body = typeof request.body === "string" ? JSON.parse(request.body || "{}") : request.body;
  if (Array.isArray(body?.Entries)) add(`${action}Entries`, body.Entries.length);
});
app.get("/_requests", async () => counts);
await app.listen({ port: Number(process.argv[2]), host: "127.0.0.1" });
