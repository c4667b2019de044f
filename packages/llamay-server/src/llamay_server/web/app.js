import * as api from "./api.js";
import { render } from "./markdown.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);
const tree = Tree.load();
const compared = new Set();
let running = null;

function el(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function status(text, error = false) {
  $("status").textContent = text;
  $("status").className = error ? "error" : "";
}

// ---- drawing

function drawMessage(node) {
  const body = el("div", { className: "body" });
  if (node.thought) body.append(el("div", { className: "thought", textContent: node.thought }));
  body.append(render(node.content));
  const footer = el("footer");
  if (node.role !== "user" && !node.busy) {
    footer.append(el("button", { type: "button", textContent: "Continue from here", onclick: () => select(node.id) }));
    footer.append(el("button", { type: "button", textContent: "Another answer", onclick: () => again(node) }));
  }
  if (node.note) footer.append(node.note);
  const box = el("article", { className: `message ${node.role}` }, body, footer);
  box.dataset.node = node.id;
  return box;
}

function drawView() {
  const shown = compared.size > 1 && compared.active ? [...compared] : [tree.current];
  const columns = shown.map((id) => el("div", { className: "column" }, ...tree.path(id).map(drawMessage)));
  $("view").replaceChildren(...columns);
}

function drawTree() {
  const path = new Set(tree.path().map((n) => n.id));
  const rows = [];
  const walk = (id, depth) => {
    for (const node of tree.children(id)) {
      const label = node.content.replace(/\s+/g, " ").slice(0, 60) || "…";
      const pick = el("button", { type: "button", textContent: label, title: node.content, onclick: () => select(node.id) });
      const row = el("div", { className: "branch" }, pick);
      row.setAttribute("role", "treeitem");
      row.classList.toggle("current", node.id === tree.current);
      row.classList.toggle("on-path", path.has(node.id));
      row.style.paddingLeft = `${Math.min(depth, 12) * 0.6}rem`;
      if (node.role === "assistant") {
        const box = el("input", { type: "checkbox", title: "Compare", checked: compared.has(node.id) });
        box.onchange = () => {
          if (box.checked) compared.add(node.id);
          else compared.delete(node.id);
          compared.active = false;
          draw();
        };
        row.prepend(box);
      }
      rows.push(row);
      walk(node.id, depth + 1);
    }
  };
  walk(null, 0);
  $("tree").replaceChildren(...rows);
  $("compare").disabled = compared.size < 2;
  $("compare").textContent = compared.active ? "Back to one branch" : `Compare ${compared.size || ""}`.trim();
  $("save").disabled = !tree.get(tree.current)?.context;
}

function draw() {
  drawTree();
  drawView();
}

function select(id) {
  tree.current = id;
  compared.active = false;
  tree.save();
  draw();
  $("input").focus();
}

// Rewrite one message while it grows, without drawing the rest again.
function redraw(node) {
  const old = document.querySelector(`[data-node="${node.id}"]`);
  if (old) old.replaceWith(drawMessage(node));
  const view = $("view");
  if (view.scrollHeight - view.scrollTop - view.clientHeight < 200) view.scrollTop = view.scrollHeight;
}

// ---- talking to the server

function settings() {
  const seed = $("seed").value.trim();
  return {
    temperature: Number($("temperature").value),
    max_tokens: Number($("max").value),
    ...(seed === "" ? {} : { seed: Number(seed) }),
  };
}

// A context in which `user` is the last thing said, for each of n answers.
async function prepare(user, n) {
  const parent = tree.get(user.parent);
  if (parent?.context) {
    try {
      const ids = await api.fork(parent.context, n);
      return ids.map((id) => [id, { messages: [{ role: "user", content: user.content }] }]);
    } catch (error) {
      if (error.status !== 404) throw error;
      parent.context = null; // The server has started anew: read the conversation again.
    }
  }
  const messages = tree.messages(user.id, $("system").value.trim());
  const { id } = await api.create({ model: $("model").value, messages });
  return [id, ...(n > 1 ? await api.fork(id, n - 1) : [])].map((context) => [context, {}]);
}

async function answer(user, n = 1) {
  const control = new AbortController();
  running = control;
  $("stop").hidden = false;
  $("send").disabled = true;
  status("Reading…");
  const began = performance.now();
  try {
    const contexts = await prepare(user, n);
    const nodes = contexts.map(() => tree.add(user, "assistant", "", { busy: true }));
    if (n > 1) {
      compared.clear();
      nodes.forEach((node) => compared.add(node.id));
      compared.active = true;
    }
    draw();
    await Promise.all(nodes.map((node, i) => follow(node, contexts[i], i, control.signal)));
    const seconds = (performance.now() - began) / 1000;
    const tokens = nodes.reduce((sum, node) => sum + (node.tokens ?? 0), 0);
    status(control.signal.aborted ? "Stopped." : `${tokens} tokens in ${seconds.toFixed(1)} s`);
  } catch (error) {
    status(error.message, true);
  } finally {
    running = null;
    $("stop").hidden = true;
    $("send").disabled = false;
    tree.save();
    draw();
  }
}

async function follow(node, [context, more], index, signal) {
  const options = settings();
  if (options.seed !== undefined) options.seed += index;
  try {
    for await (const [event, data] of api.generate(context, { ...options, ...more }, signal)) {
      if (event === "text") node.content += data.text;
      else if (event === "reasoning") node.thought = (node.thought ?? "") + data.text;
      else if (event === "done") {
        node.context = context;
        node.tokens = data.usage.completion_tokens;
        const { prompt_tokens: prompt, prompt_tokens_details: details } = data.usage;
        node.note = `${node.tokens} tokens, ${details.cached_tokens} of ${prompt} reused`;
      }
      redraw(node);
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    // The server kept the context as it was before this answer; the words so far stay on the page.
    api.remove(context);
  } finally {
    node.busy = false;
    if (!node.content && !node.thought) tree.remove(node.id);
  }
}

function again(node) {
  if (running) return;
  if (tree.get(node.parent)?.role === "user") answer(tree.get(node.parent));
}

// ---- controls

$("form").onsubmit = (event) => {
  event.preventDefault();
  const text = $("input").value.trim();
  if (!text || running) return;
  $("input").value = "";
  compared.active = false;
  let at = tree.get(tree.current);
  if (at?.role === "user") at = tree.get(at.parent);
  answer(tree.add(at, "user", text), Math.max(1, Math.min(8, Number($("count").value) || 1)));
};

$("input").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("form").requestSubmit();
  }
};

$("stop").onclick = () => running?.abort();
$("new").onclick = () => select(null);
$("compare").onclick = () => {
  compared.active = !compared.active;
  draw();
};

$("save").onclick = async () => {
  const node = tree.get(tree.current);
  try {
    const url = URL.createObjectURL(await api.snapshot(node.context));
    el("a", { href: url, download: `${node.context}.llamay` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    status("Saved.");
  } catch (error) {
    status(error.message, true);
  }
};

$("restore").onchange = async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  status("Restoring…");
  try {
    const { id, tokens } = await api.restore(file, $("model").value);
    const { text } = await api.read(id);
    select(tree.add(null, "restored", text, { context: id, note: `${tokens} tokens from ${file.name}` }).id);
    status("Restored.");
  } catch (error) {
    status(error.message, true);
  }
};

$("key").value = sessionStorage.getItem("key") ?? "";
$("key").onchange = () => {
  sessionStorage.setItem("key", $("key").value);
  start();
};

async function start() {
  draw();
  try {
    const list = await api.models();
    $("model").replaceChildren(...list.map((m) => el("option", { value: m.id, textContent: m.id })));
    status(list.length ? "" : "No model is served here.");
  } catch (error) {
    status(error.status === 401 ? "This server needs an API key: see Settings." : error.message, true);
  }
}

start();
