// Markdown to DOM nodes. Only text nodes and a handful of elements are ever made, so nothing a model writes can become
// markup, a link or a request.

const INLINE = /(`+)([\s\S]+?)\1|\*\*([\s\S]+?)\*\*|\*([^*\s][^*]*?)\*/g;

function inline(text, parent) {
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    parent.append(text.slice(at, match.index));
    const [, , code, strong, em] = match;
    const node = document.createElement(code !== undefined ? "code" : strong !== undefined ? "strong" : "em");
    node.textContent = code ?? strong ?? em;
    parent.append(node);
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
}

export function render(text) {
  const out = document.createDocumentFragment();
  const blocks = text.split(/(^```[^\n]*\n[\s\S]*?(?:^```[ \t]*$|$(?![\s\S])))/m);
  for (const block of blocks) {
    const fence = /^```([^\n]*)\n([\s\S]*?)(?:\n?^```[ \t]*)?$(?![\s\S])/m.exec(block);
    if (fence) {
      const pre = document.createElement("pre");
      const code = document.createElement("code");
      code.textContent = fence[2];
      pre.append(code);
      out.append(pre);
      continue;
    }
    for (const part of block.split(/\n{2,}/)) {
      if (!part.trim()) continue;
      const heading = /^(#{1,6}) +(.*)$/.exec(part);
      const node = document.createElement(heading ? `h${Math.min(6, heading[1].length + 2)}` : "p");
      inline(heading ? heading[2] : part, node);
      out.append(node);
    }
  }
  return out;
}
