// The services over HTTP, for browsers and Node.
import { randomID, request, segment, stream, type Following, type Options } from "./http.js";
import { checkEvent, InvalidError, requestPrefix, type Event } from "./wire.js";

export { Problem, randomID, type Following, type Options } from "./http.js";
export { InvalidError, type Event, type FieldError, type Recipient } from "./wire.js";

const post = (body: unknown, headers: Record<string, string> = {}): RequestInit =>
  ({ method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } });

/** What became of an event. */
export interface Published { event_id: string; duplicate?: boolean }

/** Publishes events through the notifier, each once. */
export class Publisher {
  constructor(readonly options: Options) {}

  /**
   * Publishes an event and returns when it is stored. Every try has the same id, so that no event is stored twice. An event without
   * an id gets a random one: give it one of your own if it may be published again after the program has ended.
   */
  async publish(event: Omit<Event, "event_id"> & { event_id?: string }, signal?: AbortSignal): Promise<Published> {
    const e: Event = { ...event, event_id: event.event_id ?? randomID() }, fields = checkEvent(e);
    if (fields.length > 0) throw new InvalidError("event", fields);
    return request(this.options, "/v1/events", post(e), signal);
  }
}

/** The state of a place at a provider. */
export interface ProviderState { status: "FOUND" | "NOT_FOUND" | "PENDING"; url: string | null; reason?: string; [more: string]: unknown }

/** A place. Members that are not named here are kept. */
export interface Place { placeId: string; name: string; address?: string; providers?: Record<string, ProviderState>; [more: string]: unknown }

export interface EnrichRequest { requestId?: string; cityText?: string; providers?: string[]; results: Place[]; waitMs?: number }
export interface EnrichResponse { requestId: string; results: Place[]; pending: number; skipped?: string }

/** What is merged into a place. */
export interface Patch { providers: Record<string, ProviderState>; wolt?: ProviderState }

/** A change of a request, with the id to go on after it. */
export type Update = { id: string } & (
  | { type: "RESULT_PATCH"; requestId: string; placeId: string; patch: Patch }
  | { type: "snapshot"; requestId: string; pending: number; places: (Patch & { placeId: string })[] }
  | { type: "reset" | "complete"; requestId: string });

/** Links places. A caller whose key is bound to a user gives that user. */
export class Enricher {
  /** The newest requests that were answered in full: the service keeps no record of them. */
  private readonly complete = new Set<string>();

  constructor(readonly options: Options & { user?: string }) {}

  /** Asks for places. The request has one id in every try. An answer without pending places is complete. */
  async enrich(r: EnrichRequest, signal?: AbortSignal): Promise<EnrichResponse> {
    const prefix = this.options.user ? requestPrefix(this.options.user) : "";
    const answer: EnrichResponse = await request(this.options, "/v1/enrich", post({ ...r, requestId: r.requestId || prefix + randomID() }), signal, 20_000 + (r.waitMs ?? 0));
    this.complete.delete(answer.requestId);
    if (answer.pending === 0) this.complete.add(answer.requestId);
    if (this.complete.size > 1000) for (const oldest of this.complete) { this.complete.delete(oldest); break; }
    return answer;
  }

  /**
   * Yields the changes of a request until all is known: where it stands, then each patch once, through any number of disconnects. Nothing
   * of a request that was answered in full: give the answer where another Enricher has asked.
   */
  async *updates(of: string | Pick<EnrichResponse, "requestId" | "pending">, f: Following = {}): AsyncGenerator<Update, void, void> {
    const requestId = typeof of === "string" ? of : of.requestId;
    if (typeof of === "string" ? this.complete.has(of) : of.pending === 0) return;
    for await (const e of stream(this.options, `/v1/requests/${segment(requestId)}/events`, f)) {
      yield { ...(e.data as object), id: e.id } as Update;
      if (e.type === "complete") return;
    }
  }
}

/** Merges a change into places, and returns those that it changed. */
export function merge(places: Place[], u: Update): Place[] {
  const patches = u.type === "RESULT_PATCH" ? [{ placeId: u.placeId, ...u.patch }] : u.type === "snapshot" ? u.places : [];
  return patches.flatMap((patch) => places.filter((place) => place.placeId === patch.placeId).map((place) => {
    place.providers = { ...place.providers, ...patch.providers };
    if (patch.wolt) place["wolt"] = patch.wolt;
    return place;
  }));
}

export interface Submission { owner_id: string; url?: string; job_id?: string; source_type?: string; language?: string; priority?: string; file?: File }

/** An import as it is. */
export interface Import {
  job_id: string; owner_id: string; status: "QUEUED" | "RUNNING" | "READY" | "FAILED"; recipe_id?: string; code?: string; error?: string; step?: string;
  progress?: number; [more: string]: unknown;
}

/** Makes recipes. */
export class Importer {
  constructor(readonly options: Options) {}

  /** Hands an import in, once for one key however often it is tried. */
  submit({ file, ...fields }: Submission, key = randomID(), signal?: AbortSignal): Promise<Import> {
    const headers = { "Idempotency-Key": key };
    if (!file) return request(this.options, "/v1/imports", post(fields, headers), signal);
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    form.set("file", file);
    return request(this.options, "/v1/imports", { method: "POST", body: form, headers }, signal);
  }

  /** Yields an import after each change until it has ended. */
  async *follow(jobID: string, f: Following = {}): AsyncGenerator<Import & { id: string }, void, void> {
    for await (const e of stream(this.options, `/v1/imports/${segment(jobID)}/events`, f)) {
      const job = e.data as Import;
      yield { ...job, id: e.id };
      if (job.status === "READY" || job.status === "FAILED") return;
    }
  }
}

export type ItemState = "unread" | "read" | "archived";

/** One notification in an inbox. */
export interface Item {
  event_id: string; event_type: string; recipient_type: string; state: ItemState; created_at: string; state_at: string; expires_at: string; id: string;
  category?: string; locale?: string; priority?: string; template?: string; payload?: unknown;
}
export interface Counts { unread: number; read: number; archived: number }
export interface Page { items: Item[]; counts: Counts; more: boolean; next?: string }

/** The inbox of one user. */
export class Inbox {
  private readonly path: string;
  private readonly type: Record<string, string>;

  constructor(readonly options: Options & { user: string; type?: string }) {
    this.path = `/v1/users/${segment(options.user)}/inbox`;
    this.type = options.type ? { type: options.type } : {};
  }

  private query(more: Record<string, string>): string {
    const text = new URLSearchParams({ ...this.type, ...more }).toString();
    return text && "?" + text;
  }

  /** Returns the newest items, or those behind a cursor: the next of the page before. */
  list(o: { states?: ItemState[]; limit?: number; cursor?: string } = {}, signal?: AbortSignal): Promise<Page> {
    return request(this.options, this.path + this.query({
      ...(o.states && { state: o.states.join(",") }), ...(o.limit && { limit: String(o.limit) }), ...(o.cursor && { cursor: o.cursor }),
    }), {}, signal);
  }

  /** Puts items into a state: those of the events, or all that are unread. */
  mark(state: ItemState, events?: string[], signal?: AbortSignal): Promise<{ marked: number; counts: Counts }> {
    const keepalive = events?.length === 1; // which browsers grant small requests only: it outlasts the page that a click leaves
    return request(this.options, this.path + this.query({}), { ...post({ state, ...(events && { events }) }), keepalive }, signal);
  }

  /** Yields every item, or those that have changed since the last event id, and then each new or changed item, once for each change. */
  async *live(f: Following = {}): AsyncGenerator<{ id: string; item: Item }, void, void> {
    for await (const e of stream(this.options, `${this.path}/events${this.query({})}`, f)) yield { id: e.id, item: e.data as Item };
  }
}
