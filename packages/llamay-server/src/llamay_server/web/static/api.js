// The server's own routes, as this page uses them.

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.error?.message ?? problem.error ?? `The server answered ${status}.`);
    this.status = status;
    this.code = problem.code ?? problem.error?.code;
  }
}

function headers() {
  const key = sessionStorage.getItem("key");
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function call(method, path, { json, body, signal } = {}) {
  const response = await fetch(path, {
    method,
    signal,
    headers: { ...headers(), ...(json === undefined ? {} : { "Content-Type": "application/json" }) },
    body: json === undefined ? body : JSON.stringify(json),
  });
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => ({})));
  return response;
}

const data = async (...args) => (await call(...args)).json();

export const models = async () => (await data("GET", "/v1/models")).data;
export const create = (json) => data("POST", "/v1/contexts", { json });
export const fork = async (id, n = 1) => (await data("POST", `/v1/contexts/${id}/fork?n=${n}`)).ids;
export const read = (id) => data("GET", `/v1/contexts/${id}?include=text`);
export const remove = (id) => call("DELETE", `/v1/contexts/${id}`).catch(() => {});
export const snapshot = async (id) => (await call("GET", `/v1/contexts/${id}/snapshot`)).blob();
export const restore = (file, model) =>
  data("POST", `/v1/contexts/restore?model=${encodeURIComponent(model)}`, { body: file });

// Yields [event, data] of a generation.
export async function* generate(id, json, signal) {
  const response = await call("POST", `/v1/contexts/${id}/generate`, { json: { ...json, stream: true }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const frames = buffer.split("\n\n");
    buffer = frames.pop();
    for (const frame of frames) {
      const lines = frame.split("\n");
      const event = lines.find((l) => l.startsWith("event: "))?.slice(7);
      const payload = lines.find((l) => l.startsWith("data: "))?.slice(6);
      if (payload === undefined) continue;
      const value = JSON.parse(payload);
      if (event === "error") throw new ApiError(value.status ?? 500, value);
      yield [event, value];
    }
  }
}
