// <expediter-inbox>: the inbox of a user, live. The notifier serves this with all it needs as one file, /v1/expediter-inbox.js.
import { Inbox, type Item, type ItemState, type Options } from "./index.js";

export * from "./index.js";

/** The words of the element. {title} and {n} are replaced. */
const english = {
  inbox: "Inbox", unread: "{n} unread", none: "No notifications", markAll: "Mark all as read", read: "Mark as read: {title}",
  unreadAgain: "Mark as unread: {title}", archive: "Archive: {title}", offline: "Not connected. Trying again…", refused: "The inbox cannot be shown.",
};

/** What is shown of an item. */
export interface Shown { title: string; text?: string; href?: string }

const text = (value: unknown): string => (typeof value === "string" || typeof value === "number" ? String(value) : "");

/** Shows the title, text and url of a payload, or else the type of the event. */
export function show(item: Item): Shown {
  const p = (item.payload ?? {}) as Record<string, unknown>, words = item.event_type.replaceAll(/[_.-]+/g, " ").toLowerCase();
  return { title: text(p["title"]) || words.charAt(0).toUpperCase() + words.slice(1), text: text(p["text"]) || text(p["message"]), href: text(p["url"]) };
}

const css = `
:host{--accent:var(--expediter-accent,#0b57d0);--ink:var(--expediter-ink,#1b1b1f);--quiet:var(--expediter-quiet,#55565c);
--paper:var(--expediter-paper,#fff);--line:var(--expediter-line,#c9cacf);
display:block;color:var(--ink);background:var(--paper);font:var(--expediter-font,1rem/1.5 system-ui,sans-serif);overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){:host{--accent:var(--expediter-accent,#a8c7fa);--ink:var(--expediter-ink,#e4e4e9);--quiet:var(--expediter-quiet,#b0b1b8);
--paper:var(--expediter-paper,#1b1b1f);--line:var(--expediter-line,#47484e)}}:host([hidden]){display:none}*{box-sizing:border-box}
header{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem 1rem;padding:.5rem 1rem;border-block-end:1px solid var(--line)}
h2{font-size:1.25em;margin:0}[part=count],[part=text],[part=time],[part=empty],[part=note]{color:var(--quiet)}header button{margin-inline-start:auto}
button{font:inherit;color:var(--accent);background:none;border:1px solid transparent;border-radius:.5rem;min-height:2.75rem;min-width:2.75rem;cursor:pointer}
button:hover{border-color:currentColor}:focus-visible{outline:3px solid var(--accent);outline-offset:-3px}ul{list-style:none;margin:0;padding:0}
li{display:flex;gap:.5rem;padding:.75rem 1rem;border-block-end:1px solid var(--line)}li>div{flex:1;min-width:0}
li.unread [part=title]{font-weight:700}[part=title]{margin:0;font-size:1em;font-weight:400}
[part=text],[part=time]{display:block;margin:0;font-size:.9375em}a{color:var(--accent)}[part=empty],[part=note]{margin:0;padding:1rem}
[part=empty]:not([hidden])+*{border:0}[hidden]{display:none!important}`;

function make<K extends keyof HTMLElementTagNameMap>(tag: K, part: string, ...children: Node[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.part.add(part);
  node.append(...children);
  return node;
}

interface Row { item: Item; li: HTMLLIElement; title: HTMLElement; text: HTMLElement; time: HTMLTimeElement; toggle: HTMLButtonElement; archive: HTMLButtonElement }

/**
 * Attributes: user, type, src (the address of the notifier; defaults to where this file comes from), limit (100). Properties: token,
 * options, labels, show. Each change of an item is an event "item", with the item and its id as detail; a refusal is "refused".
 */
export class ExpediterInbox extends HTMLElement {
  static observedAttributes = ["user", "type", "src", "limit"];
  /** A key or access token, or a function that returns one. Never an attribute: those are seen by every script and style. */
  token: Options["token"];
  options: Partial<Options> = {};
  labels: Partial<typeof english> = {};
  show: (item: Item) => Shown = show;

  private readonly rows = new Map<string, Row>();
  private readonly heading = make("h2", "heading");
  private readonly count = make("span", "count");
  private readonly all = make("button", "mark-all");
  private readonly list = make("ul", "list");
  private readonly empty = make("p", "empty");
  private readonly note = make("p", "note");
  private running: AbortController | undefined;
  private inbox: Inbox | undefined;

  constructor() {
    super();
    const sheet = new CSSStyleSheet(), root = this.attachShadow({ mode: "open", delegatesFocus: true });
    sheet.replaceSync(css); // no attribute and no element of style: a policy of 'self' lets it be
    root.adoptedStyleSheets = [sheet];
    Object.assign(this.heading, { id: "heading", tabIndex: -1 });
    for (const live of [this.count, this.note]) live.setAttribute("role", "status");
    this.list.setAttribute("aria-labelledby", "heading");
    this.list.setAttribute("role", "list"); // which Safari forgets of a list without bullets
    this.list.addEventListener("keydown", (e) => this.move(e));
    this.all.addEventListener("click", () => void this.mark("read"));
    root.append(make("header", "header", this.heading, this.count, this.all), this.note, this.empty, this.list);
  }

  connectedCallback(): void { queueMicrotask(() => this.start()); } // properties are set by then

  disconnectedCallback(): void { this.running?.abort(); }

  attributeChangedCallback(): void { if (this.running) this.start(); }

  private label(name: keyof typeof english, value = ""): string {
    return (this.labels[name] ?? english[name]).replace(/\{\w+\}/, () => value);
  }

  /** Redraws the inbox. Call it after a property has changed. */
  start(): void {
    this.running?.abort();
    this.rows.clear();
    this.list.replaceChildren();
    this.note.textContent = "";
    for (const [node, name] of [[this.heading, "inbox"], [this.all, "markAll"], [this.empty, "none"]] as const) node.textContent = this.label(name);
    this.tell();
    const user = this.getAttribute("user");
    if (!user || !this.isConnected) return;
    this.running = new AbortController();
    const type = this.getAttribute("type");
    this.inbox = new Inbox({
      ...(this.token && { token: this.token }), url: this.getAttribute("src") ?? new URL(import.meta.url).origin, user, ...(type && { type }), ...this.options,
    });
    void this.follow(this.inbox, this.running.signal);
  }

  private async follow(inbox: Inbox, signal: AbortSignal): Promise<void> {
    try {
      const connected = (there: boolean): void => { if (!signal.aborted) this.note.textContent = there ? "" : this.label("offline"); };
      for await (const change of inbox.live({ signal, connected })) {
        if (signal.aborted) return;
        this.put(change.item);
        this.dispatchEvent(new CustomEvent("item", { detail: change, bubbles: true, composed: true }));
      }
    } catch (err) { this.refuse(err, signal); }
  }

  private refuse(err: unknown, signal?: AbortSignal): void {
    if (signal?.aborted) return;
    this.note.textContent = this.label("refused");
    this.dispatchEvent(new CustomEvent("refused", { detail: err, bubbles: true, composed: true }));
  }

  private async mark(state: ItemState, events?: string[]): Promise<void> {
    try { await this.inbox?.mark(state, events, this.running?.signal); } catch (err) { this.refuse(err, this.running?.signal); }
  }

  private put(item: Item): void {
    const key = item.recipient_type + " " + item.event_id;
    let row = this.rows.get(key);
    if (item.state === "archived") {
      if (row) this.drop(key, row);
    } else if (row) this.fill(row, item);
    else {
      row = this.row(item);
      this.rows.set(key, row);
      const age = (li: Element): number => Date.parse(this.of(li).item.created_at);
      this.list.insertBefore(row.li, [...this.list.children].find((li) => age(li) <= Date.parse(item.created_at)) ?? null);
      const most = Number(this.getAttribute("limit")) || 100, last = this.list.lastElementChild;
      if (this.rows.size > most && last) this.drop(last.getAttribute("data-key") ?? "", this.of(last));
    }
    this.tell();
  }

  private of(li: Element): Row { return this.rows.get(li.getAttribute("data-key") ?? "")!; }

  private row(item: Item): Row {
    const title = make("p", "title"), body = make("p", "text"), time = make("time", "time"), toggle = make("button", "toggle"), archive = make("button", "archive");
    const li = make("li", "item", make("div", "content", title, body, time), toggle, archive), row: Row = { item, li, title, text: body, time, toggle, archive };
    for (const node of [title, body]) node.dir = "auto";
    li.dataset["key"] = item.recipient_type + " " + item.event_id;
    archive.textContent = "✕";
    toggle.addEventListener("click", () => void this.mark(row.item.state === "unread" ? "read" : "unread", [row.item.event_id]));
    archive.addEventListener("click", () => void this.mark("archived", [row.item.event_id]));
    this.fill(row, item);
    return row;
  }

  private fill(row: Row, item: Item): void {
    const shown = this.show(item), href = shown.href && URL.canParse(shown.href, location.href) ? new URL(shown.href, location.href) : undefined;
    row.item = item;
    row.li.className = item.state;
    row.li.part.toggle("unread", item.state === "unread");
    if (item.locale) row.li.lang = item.locale;
    if (href && /^https?:$/.test(href.protocol)) row.title.replaceChildren(Object.assign(make("a", "link"), { href: href.href, textContent: shown.title }));
    else row.title.textContent = shown.title;
    row.text.textContent = shown.text ?? "";
    row.time.dateTime = item.created_at;
    row.time.textContent = new Date(item.created_at).toLocaleString(this.lang || document.documentElement.lang || undefined, { dateStyle: "medium", timeStyle: "short" });
    row.toggle.textContent = item.state === "unread" ? "●" : "○";
    row.toggle.ariaLabel = this.label(item.state === "unread" ? "read" : "unreadAgain", shown.title);
    row.archive.ariaLabel = this.label("archive", shown.title);
  }

  /** Takes a row away. The focus goes on to the next one. */
  private drop(key: string, row: Row): void {
    const focused = row.li.contains(this.shadowRoot!.activeElement), next = row.li.nextElementSibling ?? row.li.previousElementSibling;
    row.li.remove();
    if (focused) (next ? this.of(next).archive : this.heading).focus();
    this.rows.delete(key);
  }

  private tell(): void {
    const unread = [...this.rows.values()].filter((row) => row.item.state === "unread").length;
    this.count.textContent = this.label("unread", String(unread));
    this.all.hidden = unread === 0;
    this.list.hidden = !(this.empty.hidden = this.rows.size > 0);
  }

  /** Arrows, Home and End move among the items, in the column of the button that has the focus. */
  private move(e: KeyboardEvent): void {
    const items = [...this.list.children], at = items.findIndex((li) => li.contains(this.shadowRoot!.activeElement));
    const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 } as Record<string, number>)[e.key];
    if (at < 0 || to === undefined || !items[to]) return;
    e.preventDefault();
    const row = this.of(items[to]);
    (this.shadowRoot!.activeElement?.part.contains("archive") ? row.archive : row.toggle).focus();
  }
}

if (!customElements.get("expediter-inbox")) customElements.define("expediter-inbox", ExpediterInbox);
