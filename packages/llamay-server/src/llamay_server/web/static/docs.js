// The OpenAPI document as a page.

const key = sessionStorage.getItem("key");
const target = document.getElementById("docs");

function el(name, text, ...children) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

function typeOf(schema, spec) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((s) => typeOf(s, spec)).join(" | ");
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (schema.type === "array") return `${typeOf(schema.items, spec) || "any"}[]`;
  return schema.type ?? "any";
}

function fields(schema, spec) {
  const name = schema.$ref?.split("/").pop();
  const table = el("table");
  const properties = (name ? spec.components.schemas[name] : schema).properties ?? {};
  for (const [key, value] of Object.entries(properties)) {
    table.append(el("tr", undefined, el("td", key), el("td", typeOf(value, spec)), el("td", value.description ?? "")));
  }
  return table;
}

function part(path) {
  if (path.startsWith("/v1/contexts")) return "Contexts";
  if (path.startsWith("/api")) return "Ollama";
  if (path.startsWith("/v1/messages")) return "Anthropic";
  return path.startsWith("/v1/") ? "OpenAI" : "llama.cpp and operation";
}

function route(verb, path, operation, spec) {
  const box = el("details", undefined, el("summary", undefined, el("b", verb.toUpperCase()), ` ${path}`));
  box.append(el("p", operation.description ?? operation.summary));
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  if (body) box.append(fields(body, spec));
  return box;
}

document.getElementById("find").oninput = (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const section of target.querySelectorAll("section")) {
    for (const box of section.querySelectorAll("details")) box.hidden = !box.textContent.toLowerCase().includes(wanted);
    section.hidden = !section.querySelector("details:not([hidden])");
  }
};

try {
  const response = await fetch("/openapi.json", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  if (!response.ok) throw new Error(`The server answered ${response.status}; set the API key on the chat page.`);
  const spec = await response.json();
  const parts = new Map();
  for (const [path, operations] of Object.entries(spec.paths)) {
    for (const [verb, operation] of Object.entries(operations)) {
      const name = operation.tags?.[0] ?? part(path);
      if (!parts.has(name)) parts.set(name, []);
      parts.get(name).push(route(verb, path, operation, spec));
    }
  }
  for (const [name, routes] of parts) target.append(el("section", undefined, el("h2", name), ...routes));
} catch (error) {
  target.append(el("p", error.message));
}
