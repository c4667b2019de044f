"""The prefix tree as a flat list that is searched from end to end: slow, and easy to believe."""

from __future__ import annotations

from dataclasses import dataclass, field

from llamay_kv import UNKNOWN_TOKEN

Chain = tuple[tuple[int, tuple[int, ...]], ...]  # (owner, tokens of the page) from the root on


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@dataclass
class Entry:
    chain: Chain
    pages: dict[int, int] = field(default_factory=dict)  # by group
    states: dict[int, dict[int, int]] = field(default_factory=dict)  # by length, then by group
    priority: float = 0.0
    serial: int = 0
    pins: int = 0

    @property
    def owner(self):
        return self.chain[-1][0]

    @property
    def tokens(self):
        return self.chain[-1][1]

    @property
    def held(self):
        return [*self.pages.items(), *(item for state in self.states.values() for item in state.items())]


class FlatTree:
    def __init__(self, groups, page_tokens, page_bytes, budget, per_token, per_position):
        self.groups, self.P, self.page_bytes, self.budget = groups, page_tokens, page_bytes, budget
        self.per_token, self.per_position = per_token, per_position
        self.entries: list[Entry] = []
        self.inflation, self.serial = 0.0, 0
        self.owners, self.last_owner = {"": 0}, 0  # the tenants that have entries
        self.recurrent = [g for g, group in enumerate(groups) if group.kind == "state"]

    def children(self, chain):
        return [e for e in self.entries if e.chain[:-1] == chain]

    def find(self, chain):
        return next((e for e in self.entries if e.chain == chain), None)

    @property
    def used(self):
        return sum(self.page_bytes[g] for g, _ in {item for e in self.entries for item in e.held})

    def best_child(self, chain, owner, tokens):
        best, length = None, 0
        for of in sorted({0, owner}):
            mine = sorted((e for e in self.children(chain) if e.owner == of), key=lambda e: e.tokens)
            after = [e for e in mine if e.tokens >= tokens][:1]
            before = [e for e in mine if e.tokens < tokens][-1:]
            for e in after + before:
                if (n := common(e.tokens, tokens)) > length:
                    best, length = e, n
            assert length >= max((common(e.tokens, tokens) for e in mine), default=0)
        return best, length

    def walk(self, owner, tokens):
        chain, path, last = (), [], 0
        while tokens:
            child, n = self.best_child(chain, owner, tuple(tokens[: self.P]))
            if child is None:
                break
            path.append(child)
            last = n
            if n < self.P:
                break
            chain, tokens = child.chain, tokens[self.P :]
        return path, last

    def first_needed(self, group, n):
        return max(0, n + 1 - group.window) if group.kind == "window" else 0

    def usable(self, owner, path, last):
        """The longest prefix that a context can be made of, and the entries that make it."""
        if self.recurrent:
            return self.usable_state(owner, path, last)
        best = 0
        for i in range(len(path)):
            end = i * self.P + (self.P if i + 1 < len(path) else last)
            if all(
                g in path[j].pages
                for g, group in enumerate(self.groups)
                for j in range(self.first_needed(group, end) // self.P, i + 1)
            ):
                best = end
        return best, path[: -(-best // self.P)]

    def usable_state(self, owner, path, last):
        """An entry with a state: of the entries of the longest length a shared one, then the first by its tokens."""
        found = []
        for i, on_path in enumerate(path):
            begin, part = i * self.P, on_path.tokens[: self.P if i + 1 < len(path) else last]
            for e in self.children(on_path.chain[:-1]):
                if e.owner not in (0, owner):
                    continue
                same = common(e.tokens, part)
                for at in e.states:
                    if at - begin <= same and self.whole([*path[:i], e], at):
                        found.append((-at, e.owner, e.tokens, [*path[:i], e]))
        if not found:
            return 0, []
        at, _, _, entries = min(found, key=lambda x: x[:3])
        return -at, entries

    def whole(self, entries, n):
        return all(
            g in entries[j].pages
            for g, group in enumerate(self.groups)
            if g not in self.recurrent
            for j in range(self.first_needed(group, n) // self.P, len(entries))
        )

    def touch(self, e):
        begin = (len(e.chain) - 1) * self.P
        size = sum(self.page_bytes[g] for g, _ in e.held)
        cost = len(e.tokens) * (self.per_token + self.per_position * begin)
        self.serial += 1
        e.priority, e.serial = self.inflation + (cost / size if size else 0), self.serial

    def leaves(self, keep=()):
        parents = {e.chain[:-1] for e in self.entries}
        free = [e for e in self.entries if e.chain not in parents and not e.pins and e.chain not in keep]
        return sorted(free, key=lambda e: (e.priority, e.serial))

    def evict(self, e):
        self.inflation = max(self.inflation, e.priority)
        self.entries.remove(e)

    def hold(self, wanted, states, keep):
        items = {*wanted.items(), *(item for state in states.values() for item in state.items())}
        while True:
            held = {item for e in self.entries for item in e.held}
            new = sum(self.page_bytes[g] for g, p in items if (g, p) not in held)
            if self.used + new <= self.budget:
                return True
            leaves = self.leaves(keep=(keep,))
            if not leaves:
                return False
            self.evict(leaves[0])

    def insert(self, tokens, page_numbers, first, tenant, shared, states=None):
        """page_numbers: for each group its pages, -1 for dropped; first: the first valid position of each; states: by
        length the page of each recurrent group."""
        if tenant not in self.owners:
            self.last_owner += 1
            self.owners[tenant] = self.last_owner
        kept = self._insert(tokens, page_numbers, first, self.owners[tenant], shared, states)
        left = {0, *(e.owner for e in self.entries)}
        self.owners = {tenant: owner for tenant, owner in self.owners.items() if owner in left}
        return kept

    def _insert(self, tokens, page_numbers, first, owner_of_tenant, shared, states):
        if UNKNOWN_TOKEN in tokens:
            tokens = tokens[: tokens.index(UNKNOWN_TOKEN)]
        chain, done = (), 0
        while done < len(tokens):
            page = tuple(tokens[done : done + self.P])
            owner = 0 if done + self.P <= shared else owner_of_tenant
            table = {
                g: numbers[done // self.P]
                for g, numbers in enumerate(page_numbers)
                if g not in self.recurrent and numbers[done // self.P] >= 0 and first[g] <= done
            }
            mine = {at: state for at, state in (states or {}).items() if done < at <= done + len(page)}
            child, equal = self.best_child(chain, owner, page)
            if child and equal < len(page) and (equal < len(child.tokens) or child.owner != owner):
                child = None
            if child is None:
                if not self.hold(table, mine, chain):
                    return done
                child = Entry((*chain, (owner, page)), table, mine)
                self.entries.append(child)
                self.absorb(child)
            elif equal < len(page):
                new = {at: state for at, state in mine.items() if at not in child.states}
                if not self.hold(table, new, child.chain):
                    return done + equal
                child.pages, child.chain = table, (*chain, (owner, page))
                child.states |= new
                self.absorb(child)
            elif len(child.tokens) == len(page) or self.recurrent:
                whole = len(child.tokens) == len(page)
                missing = {g: p for g, p in table.items() if whole and g not in child.pages}
                new = {at: state for at, state in mine.items() if at not in child.states}
                if self.hold(missing, new, child.chain):
                    child.pages |= missing
                    child.states |= new
            self.touch(child)
            done += len(page)
            chain = child.chain
        return done

    def absorb(self, shared):
        if shared.owner != 0:
            return
        for e in [
            e for e in self.children(shared.chain[:-1]) if e.tokens == shared.tokens and e is not shared
        ]:
            shared.pages = {**e.pages, **shared.pages}
            shared.states = {**e.states, **shared.states}
            shared.pins += e.pins
            n = len(shared.chain)
            for below in self.entries:
                if below.chain[:n] == e.chain and below is not e:
                    below.chain = shared.chain + below.chain[n:]
            self.entries.remove(e)

    def match(self, tokens, tenant):
        owner = self.owners.get(tenant, 0)
        n, entries = self.usable(owner, *self.walk(owner, tuple(tokens)))
        for e in entries:
            self.touch(e)
        return n

    def trace(self, tokens, tenant):
        owner = self.owners.get(tenant, 0)
        path, last = self.walk(owner, tuple(tokens))
        return ((len(path) - 1) * self.P + last if path else 0), self.usable(owner, path, last)[0]

    def dump(self):
        return sorted(
            (
                tuple((owner, tokens) for owner, tokens in e.chain),
                e.pins,
                [e.pages.get(g, -1) for g in range(len(self.groups))],
                sorted(e.states),
            )
            for e in self.entries
        )
