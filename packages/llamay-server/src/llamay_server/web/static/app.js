import * as api from "./api.js";
import { render } from "./markdown.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);
const KEPT = ["system", "temperature", "max", "seed"];
const tree = Tree.load();
const compared = new Set();
const stale = new Set();
let running = null;

function el(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const button = (text, onclick, properties = {}) => el("button", { type: "button", textContent: text, onclick, ...properties });

function status(text, error = false) {
  $("status").textContent = text;
  $("status").className = error ? "error" : "";
}

// ---- drawing

function drawBody(node) {
  const body = el("div", { className: "body" });
  if (node.thought) {
    const words = el("div", { textContent: node.thought });
    body.append(el("details", { className: "thought", open: Boolean(node.busy && !node.content) }, el("summary", { textContent: "Thinking" }), words));
  }
  if (node.role === "assistant") body.append(render(node.content));
  else body.append(node.content);
  return body;
}

function drawFooter(node) {
  const footer = el("footer");
  if (node.busy) return footer;
  if (node.role === "user") {
    if (!tree.children(node.id).length && !running) footer.append(button("Answer", () => answer(node)));
    footer.append(button("Edit", () => edit(node), { title: "Say it otherwise, as a branch of its own" }));
  } else {
    footer.append(button("Continue from here", () => select(node.id), { title: "What you say next begins a branch here" }));
    if (tree.get(node.parent)?.role === "user") footer.append(button("Another answer", () => again(node)));
  }
  footer.append(button("Copy", (event) => copy(event.target, node.content)));
  if (node.note) footer.append(el("span", { className: "note", textContent: node.note }));
  return footer;
}

function drawMessage(node) {
  const classes = ["message", node.role, node.busy && "busy", node.cut && "cut"].filter(Boolean);
  const box = el("article", { className: classes.join(" ") }, drawBody(node), drawFooter(node));
  box.dataset.node = node.id;
  return box;
}

// Branches beside one another, from where they part.
function drawCompared() {
  const paths = [...compared].map((id) => tree.path(id));
  let common = 0;
  while (paths.every((p) => p.length > common + 1 && p[common].id === paths[0][common].id)) common++;
  return paths.map((path, i) => {
    const last = path[path.length - 1];
    const head = el("h2", {}, `Branch ${i + 1}`, el("span", { className: "fill" }), button("Take this one", () => select(last.id)));
    const same = common ? el("p", { className: "same", textContent: `${common} message${common > 1 ? "s" : ""} in common` }) : null;
    return el("div", { className: "column" }, head, same, ...path.slice(common).map(drawMessage));
  });
}

function drawEmpty() {
  const words = "Every answer is a point to fork from: continue there, ask for several answers at once, set branches beside one another.";
  const head = el("h2", { textContent: "Say something" });
  return el("div", { className: "empty" }, el("img", { src: "icon.svg", alt: "" }), head, el("p", { textContent: words }));
}

function drawView() {
  const active = compared.active && compared.size > 1;
  $("view").classList.toggle("compared", Boolean(active));
  if (active) $("view").replaceChildren(...drawCompared());
  else if (tree.current === null) $("view").replaceChildren(drawEmpty());
  else $("view").replaceChildren(el("div", { className: "column" }, ...tree.path().map(drawMessage)));
}

function drawRow(node, depth, path) {
  const label = node.content.replace(/[`*#>|~\s]+/g, " ").trim().slice(0, 80) || "…";
  const pick = button(label, () => select(node.id), { title: node.content.slice(0, 400) });
  const drop = button("×", () => discard(node), { className: "drop", title: "Delete this message and what follows it" });
  drop.setAttribute("aria-label", `Delete: ${label}`);
  const row = el("div", { className: `branch ${node.role}` }, pick, drop);
  row.setAttribute("role", "treeitem");
  row.setAttribute("aria-level", String(depth + 1));
  row.setAttribute("aria-selected", String(node.id === tree.current));
  row.classList.toggle("first", node.parent === null);
  row.classList.toggle("current", node.id === tree.current);
  row.classList.toggle("on-path", path.has(node.id));
  row.style.setProperty("--depth", Math.min(depth, 10));
  if (node.role === "assistant") {
    const box = el("input", { type: "checkbox", title: "Compare", ariaLabel: `Compare: ${label}`, checked: compared.has(node.id) });
    box.onchange = () => {
      if (box.checked) compared.add(node.id);
      else compared.delete(node.id);
      compared.active = false;
      draw();
    };
    row.prepend(box);
  }
  return row;
}

// A branch is set in where it begins, not with every message, so that a long conversation stays a column.
function drawTree() {
  const path = new Set(tree.path().map((n) => n.id));
  const rows = [];
  const walk = tree.children(null).toReversed().map((node) => [node, 0]);
  while (walk.length) {
    const [node, depth] = walk.pop();
    rows.push(drawRow(node, depth, path));
    const below = tree.children(node.id);
    const inner = below.length > 1 ? depth + 1 : depth;
    for (const child of below.toReversed()) walk.push([child, inner]);
  }
  if (!rows.length) rows.push(el("div", { className: "none", textContent: "Your conversations, with all their branches, are listed here." }));
  $("tree").replaceChildren(...rows);
  $("compare").disabled = compared.size < 2;
  $("compare").textContent = compared.active ? "Back" : `Compare ${compared.size || ""}`.trim();
  $("save").disabled = !tree.get(tree.current)?.context;
}

function draw() {
  drawTree();
  drawView();
}

const atEnd = () => $("view").scrollHeight - $("view").scrollTop - $("view").clientHeight < 120;

// Rewrite the messages that have grown, once for each picture that the screen shows.
function redraw(node) {
  if (!stale.size) {
    requestAnimationFrame(() => {
      const follow = atEnd();
      for (const each of stale) document.querySelector(`[data-node="${each.id}"]`)?.replaceWith(drawMessage(each));
      stale.clear();
      if (follow) $("view").scrollTop = $("view").scrollHeight;
    });
  }
  stale.add(node);
}

function select(id, { scroll = true } = {}) {
  tree.current = id;
  compared.active = false;
  tree.save();
  draw();
  openMenu(false);
  if (scroll) $("view").scrollTop = $("view").scrollHeight;
  $("input").focus();
}

function edit(node) {
  if (running) return;
  select(node.parent);
  $("input").value = node.content;
  $("input").select();
}

function discard(node) {
  if (running) return;
  for (const gone of tree.remove(node.id)) {
    compared.delete(gone.id);
    if (gone.context) api.remove(gone.context);
  }
  compared.active = false;
  tree.save();
  draw();
}

async function copy(target, text) {
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = "Copied";
  } catch {
    target.textContent = "Not allowed here";
  }
  setTimeout(() => { target.textContent = "Copy"; }, 1500);
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
  const model = $("model").value;
  if (parent?.context && (parent.model ?? model) === model) {
    try {
      const ids = await api.fork(parent.context, n);
      return ids.map((id) => [id, { messages: [{ role: "user", content: user.content }] }]);
    } catch (error) {
      if (error.status !== 404) throw error;
      parent.context = null; // The server has started anew: read the conversation again.
    }
  }
  const restored = tree.path(user.id).find((node) => node.role === "restored");
  if (restored?.model && restored.model !== model) throw new Error(`This snapshot goes on with ${restored.model} only: choose that model.`);
  const messages = tree.messages(user.id, $("system").value.trim());
  const { id } = await api.create({ model, messages });
  return [id, ...(n > 1 ? await api.fork(id, n - 1) : [])].map((context) => [context, {}]);
}

async function answer(user, n = 1) {
  const control = new AbortController();
  running = control;
  $("stop").hidden = false;
  $("send").disabled = true;
  status("Reading…");
  draw();
  $("view").scrollTop = $("view").scrollHeight;
  const began = performance.now();
  try {
    const contexts = await prepare(user, n);
    const model = $("model").value;
    const nodes = contexts.map(() => tree.add(user, "assistant", "", { busy: true, model }));
    if (n > 1) {
      compared.clear();
      nodes.forEach((node) => compared.add(node.id));
      compared.active = true;
    }
    draw();
    $("view").scrollTop = $("view").scrollHeight;
    const ends = await Promise.allSettled(nodes.map((node, i) => follow(node, contexts[i], i, control.signal)));
    const failed = ends.find((end) => end.status === "rejected");
    if (failed) throw failed.reason;
    const seconds = (performance.now() - began) / 1000;
    const tokens = nodes.reduce((sum, node) => sum + (node.tokens ?? 0), 0);
    const rate = (tokens / seconds).toFixed(0);
    status(control.signal.aborted ? "Stopped." : `${tokens} tokens in ${seconds.toFixed(1)} s, ${rate} a second`);
  } catch (error) {
    status(explain(error), true);
  } finally {
    running = null;
    $("stop").hidden = true;
    $("send").disabled = false;
    tree.save();
    const follow = atEnd();
    draw();
    if (follow) $("view").scrollTop = $("view").scrollHeight;
  }
}

function explain(error) {
  if (error.status === 401) return "This server needs an API key: see Settings.";
  return error instanceof TypeError ? "The server does not answer. Is it running?" : error.message;
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
    // The server kept the context as it was before this answer; the words so far stay on the page.
    api.remove(context);
    node.cut = true;
    if (error.name !== "AbortError") throw error;
  } finally {
    node.busy = false;
    if (!node.content && !node.thought) tree.remove(node.id);
  }
}

function again(node) {
  if (!running) answer(tree.get(node.parent));
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
  } else if (event.key === "ArrowUp" && $("input").value === "") {
    const last = tree.path().findLast((node) => node.role === "user");
    if (last && !running) {
      event.preventDefault();
      edit(last);
    }
  }
};

document.onkeydown = (event) => {
  if (event.key === "Escape" && !$("settings").open) {
    running?.abort();
    openMenu(false);
  } else if (event.altKey && event.key.toLowerCase() === "n") {
    event.preventDefault();
    select(null);
  }
};

// Up and down go through the branches, as in any tree.
$("tree").onkeydown = (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const rows = [...$("tree").querySelectorAll(".branch > button:not(.drop)")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (at < 0 || !next) return;
  event.preventDefault();
  next.focus();
};

function openMenu(open) {
  $("side").classList.toggle("open", open);
  $("menu").setAttribute("aria-expanded", String(open));
}

$("menu").onclick = () => openMenu(!$("side").classList.contains("open"));
$("view").onclick = () => openMenu(false);
$("stop").onclick = () => running?.abort();
$("new").onclick = () => select(null);
$("open-settings").onclick = () => $("settings").showModal();
$("compare").onclick = () => {
  compared.active = !compared.active;
  openMenu(false);
  draw();
};

$("forget").onclick = () => {
  if (running || !window.confirm("Delete all conversations, here and their contexts on the server?")) return;
  for (const node of tree.children(null).slice()) discard(node);
  $("settings").close();
};

$("save").onclick = async () => {
  const node = tree.get(tree.current);
  try {
    status("Saving…");
    const url = URL.createObjectURL(await api.snapshot(node.context));
    el("a", { href: url, download: `${node.context}.llamay` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    status("Saved.");
  } catch (error) {
    status(explain(error), true);
  }
};

$("restore").onchange = async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  status("Restoring…");
  try {
    const model = $("model").value;
    const { id, tokens } = await api.restore(file, model);
    const { text } = await api.read(id);
    select(tree.add(null, "restored", text, { context: id, model, note: `${tokens} tokens from ${file.name}` }).id);
    status("Restored.");
  } catch (error) {
    status(explain(error), true);
  }
};

for (const id of KEPT) {
  $(id).value = localStorage.getItem(`llamay.${id}`) ?? $(id).value;
  $(id).onchange = () => localStorage.setItem(`llamay.${id}`, $(id).value);
}
$("model").onchange = () => localStorage.setItem("llamay.model", $("model").value);
$("key").value = sessionStorage.getItem("key") ?? "";
$("key").onchange = () => {
  sessionStorage.setItem("key", $("key").value);
  start();
};

async function start() {
  draw();
  $("view").scrollTop = $("view").scrollHeight;
  try {
    const list = await api.models();
    $("model").replaceChildren(...list.map((m) => el("option", { value: m.id, textContent: m.id })));
    const last = localStorage.getItem("llamay.model");
    if (list.some((m) => m.id === last)) $("model").value = last;
    status(list.length ? "" : "No model is served here.");
  } catch (error) {
    status(explain(error), true);
  }
}

start();
