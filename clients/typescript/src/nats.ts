// Events and jobs over NATS, for programs that have a connection: of @nats-io/transport-node, or wsconnect of @nats-io/nats-core.
import { ClosedConnectionError, headers as newHeaders, type NatsConnection } from "@nats-io/nats-core";
import { randomID, sleep } from "./http.js";
import {
  canonicalEvent, checkEvent, eventHeaders, eventSubject, expect, InvalidError, keyOf, maxBody, planJob, type Event, type Key, type NewJob, type Plan,
} from "./wire.js";

/** The server refused a request. */
export class RefusedError extends Error {
  constructor(readonly status: number, readonly code: number, description: string) {
    super(`${description} (${code})`);
    this.name = "RefusedError";
  }
}

/** Another event was published under the id. It stands: one that differs needs its own id. */
export class MismatchError extends Error {
  override name = "MismatchError";
}

/** The stream did not acknowledge a message. If unsure is true it may have it all the same: try again with the same id or key. */
export class UnacknowledgedError extends Error {
  constructor(what: string, readonly unsure: boolean, cause: unknown) {
    super(`${what} was not acknowledged${unsure ? ", and may be in the stream all the same" : ""}: ${String(cause)}`, { cause });
    this.name = "UnacknowledgedError";
  }
}

/** No consumer of the stream takes the subject of a job: nothing would ever work it. */
export class UntakenError extends Error { override name = "UntakenError"; }

interface Ack { seq: number; duplicate?: boolean }
interface Stored { subject: string; seq: number; hdrs?: string; data?: string }

/** How long one try waits for its answer in milliseconds. */
const oneTry = 2000;

async function ask<T>(nc: NatsConnection, to: string, data: Uint8Array | string, headers?: Record<string, string>, timeout = oneTry): Promise<T> {
  const h = newHeaders();
  for (const [name, value] of Object.entries(headers ?? {})) h.set(name, value);
  const answer = await nc.request(to, data, { timeout, ...(headers && { headers: h }) });
  const body = answer.json<T & { error?: { code: number; err_code: number; description: string } }>();
  if (body.error) throw new RefusedError(body.error.code, body.error.err_code, body.error.description);
  return body;
}

/** Asks the leader of a stream for something that may not be there: undefined then. */
async function find<T>(nc: NatsConnection, to: string, query: object): Promise<T | undefined> {
  return ask<T>(nc, "$JS.API.STREAM.MSG." + to, JSON.stringify(query)).catch((err) => {
    if (![10037, 10043, 10057].includes(code(err))) throw err;
    return undefined;
  });
}

const read = async (nc: NatsConnection, stream: string, query: object): Promise<Stored | undefined> =>
  (await find<{ message: Stored }>(nc, "GET." + stream, query))?.message;

const decoded = (base64 = ""): string => new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));

/** The value of a header of a stored message. */
const header = (m: Stored, name: string): string =>
  decoded(m.hdrs).split("\r\n").find((line) => line.startsWith(name + ":"))?.slice(name.length + 1).trim() ?? "";

/** The id of the insert that a message stems from. */
const insertOf = (m: Stored): string => header(m, "Job-Insert") || header(m, "Job-Id") || header(m, "Nats-Msg-Id");

const code = (err: unknown): number => (err instanceof RefusedError ? err.code : 0);
/** The last message of the subject was not the expected one. Around a change of leader that is no proof that ours was not stored. */
const isConflict = (err: unknown): boolean =>
  code(err) === 10071 || code(err) === 10164 || (code(err) === 10077 && String(err).includes("per subject"));
const isFull = (err: unknown): boolean =>
  [10002, 10028, 10047].includes(code(err)) || (code(err) === 10077 && String(err).includes("maximum ") && !isConflict(err));
/** No answer came, or one that speaks of the server and not of the request. */
const isUnknown = (err: unknown): boolean =>
  err instanceof RefusedError ? err.status === 503 || err.code === 10158 : !(err instanceof ClosedConnectionError);

/** Publishes events, each once. */
export class NatsPublisher {
  constructor(readonly nc: NatsConnection, readonly options: { source?: string; stream?: string; patience?: number } = {}) {}

  /**
   * Publishes an event and returns when the stream has it. The message id is the event's in every try, for a minute at most: the stream
   * remembers ids for two.
   */
  async publish(e: Event): Promise<{ duplicate: boolean; sequence: number }> {
    const fields = checkEvent(e), data = new TextEncoder().encode(JSON.stringify(e)), stream = this.options.stream ?? "EVENTS";
    if (data.length > maxBody) fields.push({ path: "", problem: `has more than ${maxBody} bytes` });
    if (fields.length > 0) throw new InvalidError("event", fields);
    const headers = { ...await eventHeaders(e, this.options.source ?? "/events"), "Nats-Expected-Stream": stream };
    const end = Date.now() + Math.min(this.options.patience ?? 60_000, 100_000);
    for (let unsure = false, pause = 20; ; pause = Math.min(2 * pause, 1000)) {
      try {
        const ack = await ask<Ack>(this.nc, eventSubject(e), data, headers);
        if (ack.duplicate) await this.same(e, stream, ack.seq);
        return { duplicate: ack.duplicate ?? false, sequence: ack.seq };
      } catch (err) {
        if (err instanceof MismatchError) throw err;
        unsure ||= !(err instanceof RefusedError && !isUnknown(err));
        const final = err instanceof ClosedConnectionError || [10054, 10097, 10060, 10039].includes(code(err));
        if (final || Date.now() + pause > end) throw new UnacknowledgedError(`event ${JSON.stringify(e.event_id.slice(0, 80))}`, unsure, err);
      }
      await sleep(pause);
    }
  }

  /** Throws unless the stream has the same event under the id. */
  private async same(e: Event, stream: string, seq: number): Promise<void> {
    const there = await read(this.nc, stream, { seq });
    if (there === undefined || canonicalEvent(JSON.parse(decoded(there.data))) !== canonicalEvent(JSON.parse(JSON.stringify(e))))
      throw new MismatchError(`at ${seq} is another event with the id ${JSON.stringify(e.event_id.slice(0, 80))}: one that differs needs its own id`);
  }
}

export type JobState = "" | "cancelled" | "dead" | "done" | "free" | "queued" | "scheduled";

/** What became of a job, or which one holds its key. id and state are empty for a duplicate of which the stream says no more. */
export interface Receipt { duplicate: boolean; id: string; state: JobState; subject: string; sequence: number }

interface Consumer { created: string; ts: string; config: { filter_subject?: string; filter_subjects?: string[] } }

/** Reports whether a subject falls under a filter. */
const matches = (filter: string, subject: string): boolean => new RegExp("^" +
  filter.replace(/[^\w.*>]/g, "\\$&").replaceAll(".", "\\.").replaceAll("*", "[^.]+").replace(/>$/, ".+") + "$").test(subject);

/** Inserts jobs into a stream of workers. */
export class Jobs {
  private takers: { at: number; filters: string[] } = { at: -Infinity, filters: [] };

  /** A job that no consumer takes is an UntakenError, unless allowUntaken, for workers that are still to come. */
  constructor(readonly nc: NatsConnection, readonly stream: string, readonly options: { patience?: number; allowUntaken?: boolean } = {}) {}

  /**
   * Stores a job and returns when the server has it. That another job holds the key of a unique one is no error, see Receipt. A lost
   * answer is found out, so that no job is stored twice.
   */
  insert(job: NewJob): Promise<Receipt> { return this.put(planJob(job, this.stream, randomID())); }

  /**
   * Throws if the stream has consumers and none takes a subject. When they cannot be listed, or there is none, nothing is known. A worker
   * makes its consumers one after the other: while the youngest is new, this waits for the next.
   */
  private async checkTaken(subject: string): Promise<void> {
    const known = (): boolean => this.takers.filters.some((filter) => matches(filter, subject));
    if (this.options.allowUntaken || known() || (this.takers.filters.length === 0 && Date.now() - this.takers.at < 10_000)) return;
    for (;; await sleep(100)) {
      const all = await this.consumers().catch((): Consumer[] => []);
      this.takers = { at: Date.now(), filters: all.flatMap(({ config: c }) => c.filter_subjects ?? [c.filter_subject || ">"]) };
      if (known() || all.length === 0) return;
      if (all.some((c) => Date.parse(c.ts) - Date.parse(c.created) <= 5000)) continue;
      throw new UntakenError(`no consumer of stream ${this.stream} takes ${JSON.stringify(subject)}, only ${this.takers.filters.slice(0, 20).join(", ")}: ` +
        "start a worker with a handler for it, or set allowUntaken");
    }
  }

  private async consumers(offset = 0): Promise<Consumer[]> {
    const { consumers: page, total } = await ask<{ consumers: Consumer[]; total: number }>(
      this.nc, "$JS.API.CONSUMER.LIST." + this.stream, JSON.stringify({ offset }), undefined, 250);
    if (page.length === 0 && total > offset) throw new Error(`${offset} of ${total} consumers answered`);
    return offset + page.length < total ? [...page, ...await this.consumers(offset + page.length)] : page;
  }

  private async put(p: Plan): Promise<Receipt> {
    await this.checkTaken(p.key.job);
    const most = (this.nc.info?.max_payload ?? Infinity) - 1024;
    if (p.data.length > most) throw new InvalidError("job", [{ path: "args", problem: `have ${p.data.length} bytes, at most ${most}` }]);
    const recorded = "Job-Keep" in p.headers, end = Date.now() + (this.options.patience ?? 10_000);
    for (let unsure = false, pause = 2; ; pause = Math.min(2 * pause, 1000)) {
      let failed: unknown, again = false;
      try {
        const ack = await ask<Ack>(this.nc, p.to, p.data, p.headers), duplicate = !!ack.duplicate && p.insert === p.id && !unsure && !recorded;
        return { duplicate, id: p.id, sequence: ack.seq, state: duplicate ? "" : p.due ? "scheduled" : "queued", subject: p.key.job };
      } catch (err) { failed = err; }
      try {
        const found: Receipt | "free" | undefined = recorded && isConflict(failed) ? await this.resolve(p)
          : p.job.unique && isConflict(failed) && code(failed) !== 10164 ? await this.taken(p, unsure) : undefined;
        if (found && found !== "free") return found;
        again = found === "free";
      } catch (err) { failed = err; }
      const passing: boolean = again || isConflict(failed) || (isUnknown(failed) && !isFull(failed));
      unsure ||= !isConflict(failed) && (passing || failed instanceof ClosedConnectionError);
      if (!passing || Date.now() + pause > end) throw new UnacknowledgedError(`job ${p.id} on ${p.key.job}`, unsure, failed);
      if (!again) await sleep(pause);
    }
  }

  /** Finds the job that holds the key, or makes the key free for the next try. undefined is a key that another write is about to change. */
  private async resolve(p: Plan): Promise<Receipt | "free" | undefined> {
    const m = await this.last(p.key.any);
    if (!m) {
      expect(p);
      return undefined; // done and gone in the meantime
    }
    const held = this.held(p.key, m);
    if (insertOf(m) === p.insert) return { ...held, duplicate: false };
    if (held.state === "dead" && !p.job.unique?.holdDead) await this.remove(m.seq); // before the next job, or a crash would leave both
    else if (held.state === "cancelled") await this.remove(Number(header(m, "Job-Sequence"))); // perhaps by a call that did not come to its end
    else return held;
    expect(p, held.state === "dead" ? 0 : m.seq);
    return "free";
  }

  private held(key: Key, m: Stored): Receipt {
    const first = m.subject.split(".", 1)[0] ?? "";
    const state = (first.endsWith("-later") ? "scheduled" : first.endsWith("-done") ? header(m, "Job-State") || "done" : "queued") as JobState;
    const id = header(m, "Job-Id") || header(m, "Nats-Msg-Id") || `${this.stream}:${m.seq}`;
    return { duplicate: true, id, state, subject: key.job, sequence: m.seq };
  }

  /** Says whether an unrecorded job was refused for another one, or for itself: after a lost answer only. */
  private async taken(p: Plan, unsure: boolean): Promise<Receipt | "free"> {
    const other: Receipt = { duplicate: true, id: "", state: "", subject: p.key.job, sequence: 0 };
    if (!unsure) return other;
    const m = await this.last(p.key.job);
    if (!m) return "free";
    return header(m, "Nats-Msg-Id") === p.insert ? { ...other, duplicate: false, id: p.id, state: "queued", sequence: m.seq } : other;
  }

  private last(subject: string): Promise<Stored | undefined> { return read(this.nc, this.stream, { last_by_subj: subject }); }

  private remove(seq: number): Promise<unknown> { return find(this.nc, "DELETE." + this.stream, { seq, no_erase: true }); }

  /** Returns what holds a key; the state is "free" if nothing does. It may have changed since: do not base an insert on it. */
  async inspect(subject: string, unique?: string): Promise<Receipt> {
    const key = keyOf(subject, unique), m = await this.last(key.any);
    return m ? this.held(key, m) : { duplicate: false, id: "", state: "free", subject: key.job, sequence: 0 };
  }
}
