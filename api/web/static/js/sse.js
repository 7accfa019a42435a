// The text of an event stream, taken apart.

/** Gives the events of a stream whose text comes in any pieces. */
export class EventParser {
  #rest = "";
  #lines = [];

  /**
   * @param {string} text the next piece
   * @returns {Array<{id: string|null, type: string, data: string}>} events that are complete with it
   */
  feed(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    const events = [];
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line) {
        this.#lines.push(line);
        continue;
      }
      const event = this.#event();
      if (event) events.push(event);
    }
    return events;
  }

  #event() {
    const fields = { id: null, event: "message", data: null };
    for (const line of this.#lines) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") fields.data = fields.data === null ? value : `${fields.data}\n${value}`;
      else if (name === "id" || name === "event") fields[name] = value;
    }
    this.#lines = [];
    return fields.data === null ? null : { id: fields.id, type: fields.event, data: fields.data };
  }
}
