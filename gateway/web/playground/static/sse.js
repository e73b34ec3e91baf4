// Reads server-sent events from a fetch response. `EventSource` can neither send a body nor set headers.

const LINE_END = /\r\n|\n|\r/g;

/** Turns pieces of an event stream into the data of its events, wherever the pieces are cut. */
export class EventReader {
  constructor() {
    this._decoder = new TextDecoder();
    this._rest = "";
    this._searched = 0;
    this._data = [];
  }

  /** Return the data of the events that this piece completes. */
  take(bytes) {
    return this._lines(this._decoder.decode(bytes, { stream: true }));
  }

  _lines(text) {
    this._rest += text;
    const events = [];
    for (;;) {
      LINE_END.lastIndex = this._searched;
      const end = LINE_END.exec(this._rest);
      // A lone CR at the end may be the first half of CRLF.
      if (end === null || (end[0] === "\r" && end.index === this._rest.length - 1)) {
        this._searched = end?.index ?? this._rest.length;
        return events;
      }
      this._searched = 0;
      const line = this._rest.slice(0, end.index);
      this._rest = this._rest.slice(end.index + end[0].length);
      if (line === "") {
        if (this._data.length > 0) events.push(this._data.join("\n"));
        this._data = [];
      } else if (line.startsWith("data:")) {
        this._data.push(line.slice(line[5] === " " ? 6 : 5));
      } else if (line === "data") {
        this._data.push("");
      }
    }
  }
}
