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

try {
  const response = await fetch("/openapi.json", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  if (!response.ok) throw new Error(`The server answered ${response.status}; set the API key on the chat page.`);
  const spec = await response.json();
  for (const [path, operations] of Object.entries(spec.paths)) {
    for (const [verb, operation] of Object.entries(operations)) {
      const box = el("details", undefined, el("summary", `${verb.toUpperCase()} ${path}`), el("p", operation.description ?? operation.summary));
      const body = operation.requestBody?.content?.["application/json"]?.schema;
      if (body) box.append(fields(body, spec));
      target.append(box);
    }
  }
} catch (error) {
  target.append(el("p", error.message));
}
