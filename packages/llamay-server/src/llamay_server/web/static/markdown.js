// Markdown to DOM nodes. Only text nodes and a handful of elements are ever made, so nothing a model writes can become
// markup, a link or a request.

const INLINE = /(`+)([\s\S]+?)\1|\*\*([\s\S]+?)\*\*|~~([\s\S]+?)~~|\*([^*\s][^*]*?)\*/g;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const ROW = /^\s*\|?(.+?)\|?\s*$/;

function make(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function inline(text, parent) {
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    parent.append(text.slice(at, match.index));
    const [, , code, strong, gone, em] = match;
    const [name, inner] = code !== undefined ? ["code", code] : strong !== undefined ? ["strong", strong] : gone !== undefined ? ["del", gone] : ["em", em];
    const node = make(name);
    if (name === "code") node.textContent = inner;
    else inline(inner, node);
    parent.append(node);
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
  return parent;
}

function fence(language, lines) {
  const code = make("code", lines.join("\n"));
  const copy = make("button", "Copy");
  copy.type = "button";
  copy.onclick = async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  };
  const box = make("div", make("div", make("span", language || "text"), copy), make("pre", code));
  box.className = "code";
  return box;
}

// Items of a list, those that are further in as a list of their own.
function list(lines) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const out = make(/\d/.test(mark) ? "ol" : "ul");
  if (/\d/.test(mark)) out.start = Number.parseInt(mark, 10);
  let inner = [];
  const close = () => {
    if (!inner.length) return;
    if (out.lastElementChild && ITEM.test(inner[0])) out.lastElementChild.append(list(inner));
    else for (const line of inner) inline(` ${line.trim()}`, out.lastElementChild);
    inner = [];
  };
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length) {
      close();
      out.append(inline(item[3], make("li")));
    } else {
      inner.push(line);
    }
  }
  close();
  return out;
}

function cells(line, name) {
  const parts = ROW.exec(line)[1].split("|").map((cell) => inline(cell.trim(), make(name)));
  return make("tr", ...parts);
}

function table(lines) {
  const [head, , ...rows] = lines;
  const out = make("table", make("thead", cells(head, "th")), make("tbody", ...rows.map((row) => cells(row, "td"))));
  const box = make("div", out);
  box.className = "table";
  return box;
}

const isTable = (lines, at) => lines[at].includes("|") && /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "");

export function render(text) {
  const out = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  const take = (test) => {
    const from = at;
    while (at < lines.length && test(lines[at])) at++;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const opened = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
    const heading = /^(#{1,6}) +(.*?)#*$/.exec(line);
    if (!line.trim()) {
      at++;
    } else if (opened) {
      at++;
      const body = take((l) => !l.trim().startsWith(opened[1]));
      at++;
      out.append(fence(opened[2], body));
    } else if (heading) {
      at++;
      out.append(inline(heading[2], make(`h${Math.min(6, heading[1].length + 2)}`)));
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      at++;
      out.append(make("hr"));
    } else if (line.startsWith(">")) {
      const quoted = take((l) => l.startsWith(">")).map((l) => l.replace(/^> ?/, ""));
      out.append(make("blockquote", render(quoted.join("\n"))));
    } else if (ITEM.test(line)) {
      out.append(list(take((l) => ITEM.test(l) || (l.trim() !== "" && /^\s/.test(l)))));
    } else if (isTable(lines, at)) {
      out.append(table(take((l) => l.includes("|"))));
    } else {
      const from = at++;
      while (at < lines.length && lines[at].trim() && !/^\s*(`{3,}|~{3,})|^#{1,6} |^>/.test(lines[at]) && !ITEM.test(lines[at])) at++;
      out.append(inline(lines.slice(from, at).join("\n"), make("p")));
    }
  }
  return out;
}
