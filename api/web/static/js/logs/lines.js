// The lines of a log that have been read, and those of them that are looked for.

const MOST_LINES = 200_000;

export class Lines {
  all = [];
  /** What matches the search and the rank; the same list as `all` without them. */
  matching = this.all;
  ranks = new Set();
  #text = "";
  #rank = null;

  /** Add lines at the end; of too many the oldest are dropped. */
  append(items) {
    for (const item of items) {
      this.ranks.add(item.rank);
      this.all.push(item);
      if (this.matching !== this.all && this.#matches(item)) this.matching.push(item);
    }
    if (this.all.length > MOST_LINES) {
      this.all = this.all.slice(-MOST_LINES);
      this.#match();
    }
  }

  /** Put earlier lines before the others. */
  prepend(items) {
    for (const { rank } of items) this.ranks.add(rank);
    this.all = items.concat(this.all);
    this.#match();
  }

  /** Look for a text, in capitals or not, and for lines of one rank; "" and null: all. */
  find(text, rank) {
    this.#text = text.toLowerCase();
    this.#rank = rank;
    this.#match();
  }

  get narrowed() {
    return this.matching !== this.all;
  }

  #match() {
    this.matching = this.#text || this.#rank !== null ? this.all.filter((line) => this.#matches(line)) : this.all;
  }

  #matches({ line, rank }) {
    return (this.#rank === null || rank === this.#rank) && (!this.#text || line.toLowerCase().includes(this.#text));
  }
}

/** A line cut at what was looked for: texts, of which every second one is a match. */
export function cutAt(line, text) {
  if (!text) return [line];
  const parts = [];
  const lower = line.toLowerCase();
  const wanted = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    parts.push(line.slice(from, at), line.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  parts.push(line.slice(from));
  return parts;
}
