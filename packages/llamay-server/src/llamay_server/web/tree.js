// The conversation as a tree: a node is a message; every answer keeps the context that holds it, so that going another
// way from any answer is a fork on the server and reads nothing again.

const STORE = "llamay.tree";

export class Tree {
  constructor() {
    this.nodes = new Map();
    this.current = null;
    this.next = 1;
  }

  add(parent, role, content, more = {}) {
    const node = { id: this.next++, parent: parent?.id ?? null, role, content, ...more };
    this.nodes.set(node.id, node);
    this.current = node.id;
    return node;
  }

  get(id) {
    return this.nodes.get(id) ?? null;
  }

  children(id) {
    return [...this.nodes.values()].filter((n) => n.parent === id);
  }

  path(id = this.current) {
    const out = [];
    for (let node = this.get(id); node; node = this.get(node.parent)) out.unshift(node);
    return out;
  }

  remove(id) {
    for (const child of this.children(id)) this.remove(child.id);
    const node = this.get(id);
    if (this.current === id) this.current = node.parent;
    this.nodes.delete(id);
    return node;
  }

  // Messages up to a node, as the API takes them.
  messages(id, system) {
    const said = this.path(id)
      .filter((n) => n.role !== "restored")
      .map(({ role, content }) => ({ role, content }));
    return system ? [{ role: "system", content: system }, ...said] : said;
  }

  save() {
    const value = { nodes: [...this.nodes.values()].filter((n) => !n.busy), current: this.current, next: this.next };
    try {
      localStorage.setItem(STORE, JSON.stringify(value));
    } catch {
      // A full store only means that the tree is not there after a reload.
    }
  }

  static load() {
    const tree = new Tree();
    try {
      const value = JSON.parse(localStorage.getItem(STORE));
      if (value) {
        tree.nodes = new Map(value.nodes.map((n) => [n.id, n]));
        tree.current = tree.nodes.has(value.current) ? value.current : null;
        tree.next = value.next;
      }
    } catch {
      localStorage.removeItem(STORE);
    }
    return tree;
  }
}
