// <expediter-inbox> and <expediter-bell>: the inbox of a user, live. The notifier serves both as one file, /v1/expediter-inbox.js.
import { sleep } from "./http.js";
import { Inbox, type Item, type ItemState, type Options } from "./index.js";
import { css } from "./style.js";

export * from "./index.js";

/** The texts of both elements. {title} and {n} are replaced. */
const english = {
  inbox: "Inbox", bell: "Notifications, {n} unread", unread: "{n} unread", none: "No notifications", markAll: "Mark all as read",
  read: "Mark as read: {title}", unreadAgain: "Mark as unread: {title}", archive: "Archive: {title}", loading: "Loading…",
  offline: "Not connected. Trying again…", refused: "The inbox cannot be shown.", unsaved: "The change was not saved.",
};

/** Texts that replace the English ones. */
export type Labels = Partial<typeof english>;

/** What is shown of an item. */
export interface Shown { title: string; text?: string; href?: string }

const text = (value: unknown): string => (typeof value === "string" || typeof value === "number" ? String(value) : "");

/** Shows the title, text and url of a payload, or else the type of the event. */
export function show(item: Item): Shown {
  const p = (item.payload ?? {}) as Record<string, unknown>, words = item.event_type.replaceAll(/[_.-]+/g, " ").toLowerCase();
  const title = text(p["title"]) || words.charAt(0).toUpperCase() + words.slice(1);
  return { title, text: text(p["text"]) || text(p["message"]), href: text(p["url"]) };
}

/** Returns the address of a link. Other schemes than http and https would run scripts, or open programs. */
function link(href = ""): string {
  const to = URL.canParse(href, location.href) ? new URL(href, location.href) : undefined;
  return href && to && /^https?:$/.test(to.protocol) ? to.href : "";
}

function make<K extends keyof HTMLElementTagNameMap>(tag: K, part: string, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.part.add(part);
  node.append(...children);
  return node;
}

/** Sets the text of a live region. A screen reader may say a text that is set again. */
const say = (node: HTMLElement, words: string): void => { if (node.textContent !== words) node.textContent = words; };

/** Gives the focus to a part of an item. */
const focus = (li: Element, part: string): void => li.querySelector<HTMLElement>(`[part=${part}]`)?.focus();

const keyOf = (item: Item): string => item.recipient_type + " " + item.event_id;

interface Row { item: Item; href: string; li: HTMLLIElement }

/** HTMLElement, or a class without use where a server renders pages. */
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/**
 * Attributes: user, type, src (the address of the notifier; defaults to where this file comes from), limit (100), token, and labels as
 * JSON. Events: item, itemclick, unread and failed. None is named error: it would bubble to the handlers of window.
 */
export class ExpediterInbox extends Base {
  static observedAttributes = ["user", "type", "src", "limit", "token", "labels"];
  /** How the client sends requests. It is read whenever the element connects. */
  accessor options: Pick<Options, "fetch" | "patience" | "pause"> = {};

  protected readonly heading = make("h2", "heading");
  private readonly rows = new Map<string, Row>();
  private readonly unseen = new Set<string>(); // the keys of all unread items, also of those beyond the limit
  private readonly count = make("span", "count");
  private readonly all = make("button", "mark-all");
  private readonly list = make("ul", "list");
  private readonly empty = make("p", "empty");
  private readonly note = make("p", "note");
  private secret: Options["token"];
  private renewal: Promise<string> | undefined;
  private words: Labels = {};
  private shows = show;
  private running: AbortController | undefined;
  private inbox: Inbox | undefined;
  private place = ""; // whose inbox the rows are from
  private last = ""; // the id of the last change
  private state: "" | "loading" | "offline" | "refused" | "unsaved" = "";
  private known = false; // whether the inbox was reached
  private refusals = 0;
  private reported: number | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" }), sheet = new CSSStyleSheet();
    sheet.replaceSync(css); // no attribute and no element of style: a policy of 'self' permits it
    root.adoptedStyleSheets = [sheet];
    Object.assign(this.heading, { id: "heading", tabIndex: -1 });
    for (const live of [this.count, this.note]) live.role = "status";
    this.list.setAttribute("aria-labelledby", "heading");
    this.list.role = "list"; // which Safari forgets of a list without bullets
    this.list.addEventListener("keydown", (e) => this.move(e));
    this.list.addEventListener("click", (e) => this.press(e));
    this.all.addEventListener("click", () => void this.mark("read"));
    root.append(make("div", "header", this.heading, this.count, this.all), this.note, this.empty, this.list);
  }

  /** A key or access token, or a function that returns one. The function gets a token that was refused, to return another one. */
  get token(): Options["token"] { return this.secret; }
  set token(token: Options["token"] | null) {
    if (token === this.secret) return;
    this.secret = token ?? undefined;
    if (this.state === "refused") this.begin(); // otherwise the next request asks for it
  }
  get labels(): Labels { return this.words; }
  set labels(labels: Labels | null | undefined) { this.words = labels ?? {}; this.redraw(); }
  /** Returns what is shown of an item. */
  get show(): (item: Item) => Shown { return this.shows; }
  set show(shows: ((item: Item) => Shown) | null | undefined) { this.shows = shows ?? show; this.redraw(); }
  /** The number of unread items. */
  get unread(): number { return this.unseen.size; }

  override focus(options?: FocusOptions): void { this.heading.focus(options); }

  connectedCallback(): void {
    for (const name of ["token", "labels", "show", "options"] as const) { // set before the class was defined, they hide its accessors
      const own = Object.getOwnPropertyDescriptor(this, name);
      if (own && Reflect.deleteProperty(this, name)) Object.assign(this, { [name]: own.value });
    }
    queueMicrotask(() => this.begin()); // a framework has set the properties by then
  }

  disconnectedCallback(): void { this.running?.abort(); }

  attributeChangedCallback(name: string, _: string | null, value: string | null): void {
    if (name === "token") this.token = value;
    else if (name !== "labels") queueMicrotask(() => this.begin(true));
    else try { this.labels = JSON.parse(value ?? "{}"); } catch (err) { this.emit("failed", err); }
  }

  protected label(name: keyof Labels, value: string | number = ""): string {
    return (this.words[name] ?? english[name]).replace(/\{\w+\}/, () => String(value));
  }

  protected emit(name: string, detail?: unknown, cancelable = false): boolean {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable }));
  }

  /** Follows the inbox after the last change seen, or all of it when it is another inbox. */
  private begin(ifOther = false): void {
    const [src, user, type, limit] = ["src", "user", "type", "limit"].map((name) => this.getAttribute(name));
    const place = JSON.stringify([src, user, type, limit]), isOther = place !== this.place;
    if (!this.isConnected || (ifOther && !isOther)) return;
    this.running?.abort();
    if (isOther) {
      [this.place, this.last, this.known, this.refusals] = [place, "", false, 0];
      for (const all of [this.rows, this.unseen]) all.clear();
      this.list.replaceChildren();
    }
    this.turn(user && !this.known ? "loading" : "");
    if (!user) return;
    const token = (refused?: string): Promise<string> => this.ask(refused), url = src ?? new URL(import.meta.url).origin;
    void this.follow({ ...this.options, url, user, ...(type && { type }), token }, (this.running = new AbortController()).signal);
  }

  /** Asks the page for its token. One renewal serves all requests: pages with refresh tokens may use each only once. */
  private async ask(refused?: string): Promise<string> {
    const of = this.secret;
    if (typeof of !== "function") return of ?? "";
    if (refused === undefined) return of();
    return this.renewal ??= (async () => of(refused))().finally(() => { this.renewal = undefined; });
  }

  private async follow(options: Inbox["options"], signal: AbortSignal): Promise<void> {
    const connected = (there: boolean): void => {
      if (signal.aborted) return;
      if (there) [this.known, this.refusals] = [true, 0];
      this.turn(there ? "" : "offline");
    };
    try {
      this.inbox = new Inbox(options);
      if (this.refusals > 1) await sleep(Math.min(500 * 2 ** this.refusals, 30_000), signal); // the page sets one bad token after another
      for await (const change of this.inbox.live({ lastEventID: this.last, signal, connected })) {
        if (signal.aborted) return;
        this.last = change.id;
        this.put(change.item);
        this.emit("item", change);
      }
    } catch (err) {
      if (signal.aborted) return;
      this.refusals++;
      this.turn("refused", err);
    }
  }

  /** Shows the state of the inbox, and reports its error to the page. */
  private turn(state: typeof this.state, failed?: unknown): void {
    this.state = state;
    this[state ? "tell" : "soon"]();
    if (failed) this.emit("failed", failed);
  }

  /** Marks items, even when the user leaves the page or the page takes the element away. */
  private async mark(state: ItemState, events?: string[]): Promise<void> {
    try {
      await this.inbox?.mark(state, events);
      if (this.state === "unsaved") this.turn("");
    } catch (err) { this.turn(this.state === "refused" ? "refused" : "unsaved", err); }
  }

  private put(item: Item): void {
    const key = keyOf(item), row = this.rows.get(key);
    this.unseen[item.state === "unread" ? "add" : "delete"](key);
    if (item.state !== "archived") this.draw(item);
    else if (row) this.drop(row);
    if (this.rows.size > (Number(this.getAttribute("limit")) || 100)) this.drop(this.of(this.list.lastElementChild!));
    this.soon();
  }

  private of(li: Element): Row { return this.rows.get(li.getAttribute("data-key") ?? "")!; }

  /** Draws an item: in the place of its former row, or by its age. The focus stays where it is. */
  private draw(item: Item): void {
    const key = keyOf(item), old = this.rows.get(key)?.li, now = this.shadowRoot!.activeElement, isUnread = item.state === "unread";
    let shown = show(item);
    try { shown = this.shows(item); } catch (err) { this.emit("failed", err); }
    const href = link(shown.href), name = make(href ? "a" : "button", "link", shown.title), title = make("p", "title", name);
    const body = make("p", "text", shown.text ?? ""), time = make("time", "time", this.when(item.created_at));
    for (const node of [title, body]) node.dir = "auto";
    if (href) Object.assign(name, { href });
    time.dateTime = item.created_at;
    const toggle = make("button", "toggle", isUnread ? "●" : "○"), archive = make("button", "archive", "✕");
    toggle.ariaLabel = this.label(isUnread ? "read" : "unreadAgain", shown.title);
    archive.ariaLabel = this.label("archive", shown.title);
    const li = make("li", "item", make("div", "content", title, body, time), toggle, archive), at = Date.parse(item.created_at);
    li.dataset["key"] = key;
    li.className = item.state;
    li.part.toggle("unread", isUnread);
    if (item.locale) li.lang = item.locale;
    if (old) old.replaceWith(li);
    else this.list.insertBefore(li, [...this.list.children].find((li) => Date.parse(this.of(li).item.created_at) <= at) ?? null);
    this.rows.set(key, { item, href, li });
    if (now && old?.contains(now)) focus(li, now.part.value);
  }

  private when(at: string, lang = this.closest<HTMLElement>("[lang]")?.lang || undefined): string {
    try {
      return new Date(at).toLocaleString(lang, { dateStyle: "medium", timeStyle: "short" });
    } catch { return this.when(at, navigator.language); } // the page has a lang that is no language
  }

  /** Takes a row away. The focus goes on to the next one. */
  private drop({ item, li }: Row): void {
    const focused = li.contains(this.shadowRoot!.activeElement), next = li.nextElementSibling ?? li.previousElementSibling;
    li.remove();
    this.rows.delete(keyOf(item));
    if (focused && next) focus(next, "archive");
    else if (focused) this.heading.focus();
  }

  private redraw(): void {
    for (const row of this.rows.values()) this.draw(row.item);
    this.tell();
  }

  /** Tells once what comes at once: a screen reader says one number. */
  private soon(): void { this.timer ??= setTimeout(() => this.tell(), 50); }

  /** Shows all that is no row, and tells the page the number of unread items. */
  protected tell(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.heading.textContent = this.label("inbox");
    this.all.textContent = this.label("markAll");
    this.empty.textContent = this.label("none");
    say(this.note, this.state && this.label(this.state));
    say(this.count, this.known ? this.label("unread", this.unread) : "");
    this.all.hidden = this.unread === 0;
    this.list.hidden = this.rows.size === 0;
    this.empty.hidden = !this.known || this.rows.size > 0 || this.state !== "";
    if (this.known && this.reported !== this.unread) this.emit("unread", this.reported = this.unread);
  }

  private press(e: MouseEvent): void {
    const target = (e.target as Element).closest("a,button"), li = target?.closest("li");
    if (!target || !li) return;
    const { item, href } = this.of(li), isUnread = item.state === "unread";
    if (target.part.contains("archive")) return void this.mark("archived", [item.event_id]);
    if (target.part.contains("toggle")) return void this.mark(isUnread ? "read" : "unread", [item.event_id]);
    if (isUnread) void this.mark("read", [item.event_id]);
    if (!this.emit("itemclick", { item, href }, true)) e.preventDefault();
  }

  /** Arrows, Home and End move among the items, in the column of the button that has the focus. */
  private move(e: KeyboardEvent): void {
    const items = [...this.list.children], now = this.shadowRoot!.activeElement, at = items.findIndex((li) => li.contains(now));
    const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 } as Record<string, number>)[e.key];
    if (!now || at < 0 || to === undefined || !items[to]) return;
    e.preventDefault();
    focus(items[to], now.part.value);
  }
}

/** An inbox in a panel that a bell opens, with all attributes, properties and events of an inbox. More events: opened, closed. */
export class ExpediterBell extends ExpediterInbox {
  private readonly badge = make("span", "badge");
  private readonly button = make("button", "bell", this.badge);
  private readonly status = make("span", "status");
  private readonly panel = make("div", "panel");

  constructor() {
    super();
    const root = this.shadowRoot!;
    this.badge.ariaHidden = "true"; // the label of the button has the number
    this.status.role = "status";
    this.panel.append(...root.childNodes);
    Object.assign(this.panel, { popover: "auto", role: "dialog" }); // Escape and a click elsewhere close it
    this.panel.setAttribute("aria-labelledby", "heading");
    this.panel.addEventListener("beforetoggle", (e) => this.flip((e as ToggleEvent).newState === "open"));
    this.panel.addEventListener("toggle", (e) => this.flipped((e as ToggleEvent).newState === "open"));
    Object.assign(this.button, { popoverTargetElement: this.panel, ariaHasPopup: "dialog", ariaExpanded: "false" });
    this.addEventListener("itemclick", (e) => { if ((e as CustomEvent<Row>).detail.href) this.panel.hidePopover(); });
    let pressed: EventTarget | null; // Enter on a link closes the panel: the rest of the key must not open it again
    root.addEventListener("keydown", (e) => { pressed = e.target; });
    this.button.addEventListener("keypress", (e) => { if (pressed !== this.button) e.preventDefault(); });
    root.append(this.button, this.status, this.panel);
  }

  override focus(options?: FocusOptions): void { this.button.focus(options); }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.flip(false); // no event comes when the browser closes a panel that leaves the page
  }

  protected override tell(): void {
    super.tell();
    this.badge.hidden = this.unread === 0;
    this.badge.textContent = this.unread > 99 ? "99+" : String(this.unread);
    this.button.ariaLabel = this.label("bell", this.unread);
    if (this.panel.matches(":popover-open")) return; // the inbox says it
    say(this.status, this.unread ? this.label("unread", this.unread) : "");
  }

  private flip(open: boolean): void {
    this.button.ariaExpanded = String(open);
    for (const moved of ["resize", "scroll"]) (open ? addEventListener : removeEventListener)(moved, this.fit, true);
    if (open) this.fit();
    else if (this.panel.contains(this.shadowRoot!.activeElement)) this.button.focus();
  }

  private flipped(open: boolean): void {
    if (open) this.heading.focus();
    this.emit(open ? "opened" : "closed");
  }

  /** Fits the panel into the window, next to the button, above it where there is more room. */
  private readonly fit = (): void => {
    const at = this.button.getBoundingClientRect(), wide = document.documentElement.clientWidth, below = innerHeight - at.bottom;
    const width = Math.min(384, wide - 16), isAbove = below < 320 && at.top > below;
    const left = getComputedStyle(this).direction === "rtl" ? at.left : at.right - width;
    Object.assign(this.panel.style, {
      width: `${width}px`, left: `${Math.max(8, Math.min(left, wide - width - 8))}px`, maxHeight: `${(isAbove ? at.top : below) - 16}px`,
      top: isAbove ? "auto" : `${at.bottom + 8}px`, bottom: isAbove ? `${innerHeight - at.top + 8}px` : "auto",
    });
  };
}

declare global {
  interface HTMLElementTagNameMap { "expediter-inbox": ExpediterInbox; "expediter-bell": ExpediterBell }
}

for (const [name, element] of [["expediter-inbox", ExpediterInbox], ["expediter-bell", ExpediterBell]] as const)
  if (globalThis.customElements?.get(name) === undefined) globalThis.customElements?.define(name, element);
