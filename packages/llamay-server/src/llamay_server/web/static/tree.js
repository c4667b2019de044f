// The conversation as a tree: a node is a message; every answer keeps the context that holds it, so that going another
// way from any answer is a fork on the server and reads nothing again.

const STORE = "llamay.tree";

export class Tree {
  constructor() {
    this.nodes = new Map();
    this.below = new Map();
    this.current = null;
    this.next = 1;
  }

  add(parent, role, content, more = {}) {
    const node = { id: this.next++, parent: parent?.id ?? null, role, content, ...more };
    this.#put(node);
    this.current = node.id;
    return node;
  }

  #put(node) {
    this.nodes.set(node.id, node);
    if (!this.below.has(node.parent)) this.below.set(node.parent, []);
    this.below.get(node.parent).push(node);
  }

  get(id) {
    return this.nodes.get(id) ?? null;
  }

  children(id) {
    return this.below.get(id) ?? [];
  }

  path(id = this.current) {
    const out = [];
    for (let node = this.get(id); node; node = this.get(node.parent)) out.push(node);
    return out.reverse();
  }

  // A node with all that follows it; gives them.
  remove(id) {
    const node = this.get(id);
    const gone = [];
    const walk = [node];
    while (walk.length) {
      const each = walk.pop();
      gone.push(each);
      walk.push(...this.children(each.id));
      this.nodes.delete(each.id);
      this.below.delete(each.id);
    }
    this.below.set(node.parent, this.children(node.parent).filter((n) => n !== node));
    if (!this.nodes.has(this.current)) this.current = node.parent;
    return gone;
  }

  // The last message of the branch on which a node is, as it was gone on with first.
  leaf(id) {
    let node = this.get(id);
    for (let next = node; next; [next] = this.children(next.id)) node = next;
    return node?.id ?? null;
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
        const known = new Set(value.nodes.map((n) => n.id));
        for (const node of value.nodes) if (node.parent === null || known.has(node.parent)) tree.#put(node);
        tree.current = tree.nodes.has(value.current) ? value.current : null;
        tree.next = value.next;
      }
    } catch {
      localStorage.removeItem(STORE);
      return new Tree();
    }
    return tree;
  }
}
