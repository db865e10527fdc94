// The rules of the wire: how ids become tokens, subjects, keys and message ids, and what an event and a job must be.
// clients/wire/cases.json has a case for each of them, which Go and this file both pass.

/** The longest id in bytes of UTF-8 that becomes part of a subject or a key. */
export const maxID = 320;
const maxName = 64, maxMsgID = 256, maxSubject = 1024, maxURL = 2048, maxHeaders = 16 << 10;
/** The largest body of an event in bytes. */
export const maxBody = 1 << 20;
const day = 24 * 3600e3, maxKeep = 366 * day, maxAhead = 3650 * day;

const utf8 = new TextEncoder();
const bytes = (text: string): number => utf8.encode(text).length;
const control = /[\u0000-\u001f\u007f-\u009f]/, line = /^[^\u0000-\u001f\u007f-\u009f]*$/, proper = /^[^\ufffd]*$/;
const safe = /^[A-Za-z0-9_-]+$/;

/** A field that breaks its rule: a JSON pointer for events, the name of a property for jobs. */
export interface FieldError { path: string; problem: string }

/** What was given breaks a rule of the wire. Nothing was sent. */
export class InvalidError extends Error {
  constructor(what: string, readonly fields: FieldError[]) {
    super(`invalid ${what}: ` + fields.slice(0, 20).map((f) => `${f.path || "body"} ${f.problem}`).join("; "));
    this.name = "InvalidError";
  }
}

const refuse = (what: string, problem: string): never => { throw new InvalidError(what, [{ path: what, problem }]); };

const base64url = (data: Uint8Array): string =>
  btoa(String.fromCharCode(...data)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** Turns any id into one token of a subject or key: as it is if it has only A-Z, a-z, 0-9, '_', '-', else '=' and base64url. */
export function encodeToken(id: string): string {
  if (id === "" || bytes(id) > maxID || !id.isWellFormed()) refuse("id", `must be Unicode of 1 to ${maxID} bytes`);
  return safe.test(id) ? id : "=" + base64url(utf8.encode(id));
}

/** Returns the id that encodeToken made the token from, and refuses what it would never have made. */
export function decodeToken(token: string): string {
  let id = token;
  try {
    if (token.startsWith("=") && safe.test(token.slice(1))) {
      const raw = atob(token.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
      id = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(raw, (c) => c.charCodeAt(0)));
    }
    if (encodeToken(id) === token) return id;
  } catch { /* as below */ }
  return refuse("token", "was not made of an id");
}

const names = (name: string): string =>
  safe.test(name) && name.length <= maxName ? name : refuse("name", `must be 1 to ${maxName} of A-Z, a-z, 0-9, '_' and '-'`);
const id = encodeToken;

/** The subject of an event. */
export const eventSubject = (e: Event): string =>
  e.route === undefined ? `events.${id(e.aggregate_type)}.${id(e.event_type)}` : `events./routed.${id(e.event_type)}`;
/** The subject of an import job. */
export const importJobSubject = (priority: string, jobID: string): string => `jobs.import.${names(priority)}.${id(jobID)}`;
/** The subject of the job that looks a place up; its last two tokens are the key of the entry. */
export const enrichJobSubject = (provider: string, placeID: string): string => `jobs.enrich.${enrichEntryKey(provider, placeID)}`;
export const enrichEntryKey = (provider: string, placeID: string): string => `${names(provider)}.${id(placeID)}`;
/** The subject of one row of a notification. */
export const sendSubject = (channel: string, recipientType: string, user: string, event: string): string =>
  `notify.send.${names(channel)}.${names(recipientType)}.${id(user)}.${id(event)}`;
/** The key of an item in the bucket inbox. */
export const inboxKey = (recipientType: string, user: string, event: string): string => `${names(recipientType)}.${id(user)}.${id(event)}`;
/** The subject of the dead letter of a job. */
export const deadSubject = (stream: string, job: string, prefix = "dead"): string => `${prefix}.${stream}.${keyOf(job).job}`;
/** The prefix of the ids of requests of a caller that is bound to a user. */
export const requestPrefix = (user: string): string =>
  encodeURIComponent(user).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase()).replaceAll("%20", "+") + ":";

/** The Nats-Msg-Id for an id: itself if it is short and printable, else its SHA-256. */
export async function messageID(id: string): Promise<string> {
  if (/^[\x21-\x7e]+$/.test(id) && id.length <= maxMsgID && !id.startsWith("sha256=")) return id;
  return "sha256=" + base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(id))));
}
/** The Nats-Msg-Id of a CloudEvent. */
export const cloudEventID = (source: string, id: string): Promise<string> =>
  messageID(source.replaceAll("\\", "\\\\").replaceAll("|", "\\|") + "|" + id);

/** The value of an attribute of a CloudEvent as a header. */
export const percentEncode = (value: string): string =>
  encodeURIComponent(value).replace(/%(?!2[25]|20|7F)([2-7][0-9A-F])/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));

/** One of the addresses that a user has on a channel. That of "main" is in addresses. */
export interface Endpoint { address?: string; disabled?: boolean; events?: string[]; generation?: number; name?: string; previous?: number; rotated_at?: string; unverified?: boolean }

/** A person that an event names. */
export interface Recipient {
  user_id: string; recipient_type: string; locale?: string; time_zone?: string; addresses?: Record<string, string>;
  endpoints?: Record<string, Record<string, Endpoint>>; opt_out?: Record<string, string[]>; mute?: Record<string, string>;
  digest?: Record<string, string>; quiet_hours?: { from: string; to: string }; [more: string]: unknown;
}

/** What happened in a domain, published once under its id. */
export interface Event {
  event_id: string; event_type: string; aggregate_type: string; aggregate_id?: string; recipientType?: string;
  restaurant_id?: string | number | null; user_id?: string; occurred_at?: string; not_before?: string; payload?: unknown;
  recipients?: Recipient[]; route?: unknown;
}

const time = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/;

const clock = /^([01]\d|2[0-3]):[0-5]\d$/;

/** Reports whether a wish says when what comes together is sent: "off", a part of a day such as 30m, or times of day. */
function isDigest(wish: unknown): boolean {
  const times = String(wish).split(","), [, h = 0, m = 0] = /^(?:(\d+)h)?(?:(\d+)m)?(?:0s)?$/.exec(String(wish)) ?? [];
  return wish === "off" || 1440 % (60 * Number(h) + Number(m)) === 0 ||
    (times.every((at) => clock.test(at)) && times.length <= 24 && new Set(times).size === times.length);
}

const zones = new Set<unknown>([""]); // those that were looked up: it takes long
function isZone(name: string): boolean {
  try { return zones.has(name) || (/^(?!(?:Local|Factory)$)[A-Z][\w+/-]*$/.test(name) && !!zones.add(new Intl.DateTimeFormat("en", { timeZone: name }) && name)); } catch { return false; }
}

type Rule = (value: any, path: string, key?: string) => void;

/** Checks an event, all fields at once. */
export function checkEvent(e: Event): FieldError[] {
  const fields: FieldError[] = [], isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
  const no = (bad: unknown, path: string, problem: string): void => { if (bad) fields.push({ path, problem }); };
  const must = (be: string, test: (value: any) => unknown): Rule => (value, path) => no(!test(value), path, "must be " + be);
  const maybe = (rule: Rule): Rule => (value, path) => { if (value !== undefined && value !== null) rule(value, path); };
  const text = (most: number, pattern = /^/, least = 1): Rule => must(`${pattern} of ${least} to ${most} bytes of Unicode`, (value) =>
    typeof value === "string" && (value === "" ? least === 0 : bytes(value) <= most && value.isWellFormed() && pattern.test(value)));
  const object = (rules: Record<string, Rule>): Rule => (value, path, key) => isObject(value)
    ? Object.entries(rules).forEach(([name, rule]) => rule(value[name], `${path}/${name}`, key)) : no(true, path, "must be an object");
  const map = (of: Rule, rule: Rule, most = Infinity): Rule => maybe((value, path) => {
    no(!isObject(value) || Object.keys(value).length > most, path, `must be an object of at most ${most} members`);
    if (isObject(value)) for (const key in value) { of(key, `${path}/${key}`); rule(value[key], `${path}/${key}`, key); }
  });
  const list = (most: number, rule: Rule): Rule => maybe((value, path) => Array.isArray(value) && value.length <= most
    ? value.forEach((one, i) => rule(one, `${path}/${i}`)) : no(true, path, `must be a list of at most ${most}`));
  const id = text(maxID, proper), name = text(maxName, safe), category = text(maxName, /^(\*|[\w-]+)$/), hour = must("a time of day such as 22:00", (at) => clock.test(at));
  const flag = maybe(must("true or false", (value) => typeof value === "boolean"));
  const count = maybe(must("a whole number of 0 or more", (n) => Number.isSafeInteger(n) && n >= 0));
  const when = must("a time such as 2026-12-01T08:00:00Z", (at) =>
    typeof at === "string" && time.test(at) && new Date(at.slice(0, 10)).toJSON()?.startsWith(at.slice(0, 10)) && !at.startsWith("0000"));
  const recipient = object({
    user_id: id, recipient_type: text(maxName, /^(?!BROADCAST$)[\w-]+$/), locale: maybe(text(maxName, safe, 0)), addresses: map(name, text(maxURL, line, 0)),
    endpoints: map(text(maxName, /^(?!inapp$)[\w-]+$/), map(text(maxName, /^[A-Za-z][\w-]*$/), object({
      address: (value, path, key) => (key === "main" ? no(value, path, "must be in addresses: main is the address that is there") : text(maxURL, line)(value, path)),
      events: list(100, text(maxID, /^[^*\ufffd]*\*?$/)), generation: count, previous: count, name: maybe(text(1024, /^/, 0)),
      rotated_at: maybe(when), disabled: flag, unverified: flag,
    }), 20)),
    opt_out: map(category, list(Infinity, category)), mute: map(category, when), quiet_hours: maybe(object({ from: hour, to: hour })),
    digest: map(category, must("off, minutes or hours that divide a day such as 30m or 4h, or times of day such as 09:00,17:00", isDigest)),
    time_zone: maybe(must("the IANA name of a time zone, such as Asia/Jerusalem", isZone)),
  });
  object({
    event_id: id, event_type: id, aggregate_type: id, aggregate_id: maybe(text(maxID, proper, 0)), user_id: maybe(text(maxID, proper, 0)),
    recipientType: maybe(text(maxName, safe, 0)), occurred_at: maybe(when), not_before: maybe(when), recipients: list(10_000, recipient),
    restaurant_id: maybe((value, path) => (typeof value === "number" ? must("a string or a whole number", Number.isSafeInteger) : id)(value, path)),
    payload: must("valid Unicode", wellFormed), route: must("valid Unicode", wellFormed),
  })(e, "");
  no(e.route !== undefined && !e.recipients?.length, "/recipients", "is required for an event that says how they are notified");
  return fields;
}

const wellFormed = (value: unknown): boolean => !/\\ud[89a-f]/i.test((JSON.stringify(value) ?? "").replaceAll("\\\\", ""));

/** The event in canonical form without occurred_at: two events under one id must have the same. */
export function canonicalEvent(e: Event): string {
  const order = (value: unknown): unknown => Array.isArray(value) ? value.map(order) : typeof value !== "object" || value === null ? value
    : Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => [k, order(v)]));
  const { event_id, event_type, aggregate_type, aggregate_id, recipientType, restaurant_id, user_id, not_before, payload, recipients, route } = e;
  return JSON.stringify(order({
    event_id, event_type, aggregate_type, restaurant_id, payload, route, not_before, aggregate_id: aggregate_id || undefined,
    recipientType: recipientType || undefined, user_id: user_id || undefined, recipients: recipients?.length ? recipients : undefined,
  }));
}

/** The headers of an event: a CloudEvent in binary mode, under the event's own id. */
export async function eventHeaders(e: Event, source: string): Promise<Record<string, string>> {
  const headers: Record<string, string> = { "Nats-Msg-Id": await messageID(e.event_id) };
  if (control.test(e.event_id)) return headers; // no attribute can have it; the body has the id
  const attributes = {
    specversion: "1.0", id: e.event_id, source, type: "io.expediter.domain.event.v1", datacontenttype: "application/json",
    ...(e.occurred_at && { time: rfc3339(e.occurred_at) }),
  };
  for (const [name, value] of Object.entries(attributes)) headers["ce-" + name] = percentEncode(value);
  return headers;
}

/** A time in UTC without zeros at its end. */
export function rfc3339(at: string | Date): string {
  const text = typeof at === "string" ? at : at.toISOString();
  const digits = (/\.(\d{1,9})/.exec(text)?.[1] ?? "").replace(/0+$/, "");
  return new Date(text.replace(/\.\d+/, "")).toISOString().slice(0, 19) + (digits && "." + digits) + "Z";
}

/** What makes a job the only one of its key. */
export interface Unique {
  /** Appended to the subject as one token. Defaults to none: the subject is the key. */
  key?: string;
  /** For how many milliseconds a completed job goes on holding its key. Defaults to 0. */
  keep?: number;
  /** A dead job holds its key until it is freed. Defaults to false. */
  holdDead?: boolean;
  /** The job holds its key for as long as it is in the stream, and nothing else is stored. Not with keep, holdDead or a delay. */
  unrecorded?: boolean;
}

/** A job to insert. */
export interface NewJob {
  subject: string;
  /** The payload, as JSON; a Uint8Array is one as it is. */
  args?: unknown;
  /** When it becomes due. Defaults to now. */
  at?: Date;
  /** at as milliseconds from now. Not both. */
  delay?: number;
  headers?: Record<string, string>;
  /** Identifies the job in every attempt. Defaults to a random one. */
  id?: string;
  unique?: Unique;
}

/** The subjects of a job's messages: the job, its schedule, its record, and all of them. */
export interface Key { job: string; later: string; done: string; any: string }

/** The key of a job's subject. */
export function keyOf(subject: string, unique?: string): Key {
  if (unique) subject += "." + encodeToken(unique);
  const [first = "", ...rest] = subject.split(".");
  if (bytes(subject) > maxSubject || rest.length === 0 || [first, ...rest].includes("") || /[\s\u0000-\u0020\u007f*>]/.test(subject) ||
    /-(done|later)$/.test(first)) refuse("subject", `must have two or more tokens without wildcards, spaces, or -done or -later behind the first, at most ${maxSubject} bytes`);
  const behind = rest.join(".");
  return { job: subject, later: `${first}-later.${behind}`, done: `${first}-done.${behind}`, any: `*.${behind}` };
}

/** A job ready to be published, as often as it takes. */
export interface Plan {
  key: Key; id: string; insert: string; to: string; headers: Record<string, string>; data: Uint8Array; job: NewJob; due: number;
}

/** Go's form of whole seconds. */
const duration = (ms: number): string => {
  const s = Math.ceil(ms / 1000), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return (h ? `${h}h` : "") + (h || m ? `${m}m` : "") + `${s % 60}s`;
};

/** Checks a job, all at once, and makes its message for a stream. insert is an id that no other insert has. */
export function planJob(job: NewJob, stream: string, insert: string, now = Date.now()): Plan {
  const fields: FieldError[] = [];
  const no = (bad: boolean, path: string, problem: string): void => { if (bad) fields.push({ path, problem }); };
  const u = job.unique, given = job.headers ?? {}, headers: Record<string, string> = { ...given };
  let key: Key = { job: "", later: "", done: "", any: "" };
  try { key = keyOf(job.subject, u?.key); } catch (err) { no(true, "subject", err instanceof Error ? err.message : String(err)); }
  let due = job.at?.getTime() ?? 0;
  no(Number.isNaN(due) || (job.delay ?? 0) < 0 || (!!job.delay && !!due), "at", "must be a time, or a delay of 0 or more: not both");
  if (job.delay) due = now + job.delay;
  if (due <= now) due = 0;
  no(due - now > maxAhead, "at", "is more than 3650 days ahead");
  for (const [name, value] of Object.entries(given)) {
    no(name === "" || /^(nats|job)-|[: ]/i.test(name) || control.test(name + value) || !(name + value).isWellFormed(), "headers",
      "must not begin with Nats- or Job-, or have control characters");
  }
  no(bytes(Object.entries(given).flat().join("")) > maxHeaders, "headers", `have more than ${maxHeaders} bytes`);
  const known = job.id ?? "";
  no(bytes(known) > maxID || control.test(known) || !known.isWellFormed() || known.trim() !== known, "id",
    `must have at most ${maxID} bytes, without control characters and spaces at its ends`);
  no((u?.keep ?? 0) < 0 || (u?.keep ?? 0) > maxKeep, "unique.keep", "must be 0 to 366 days");
  no(!!u?.unrecorded && (!!u.holdDead || !!u.keep || due > 0), "unique.unrecorded", "goes without holdDead, keep and delay: those are recorded");
  const recorded = u !== undefined && !u.unrecorded;
  const data = job.args instanceof Uint8Array ? job.args : utf8.encode(JSON.stringify(job.args ?? null));
  if (fields.length > 0) throw new InvalidError("job", fields);

  const id = known || insert;
  if (known && !recorded) insert = known;
  Object.assign(headers, {
    "Nats-Expected-Stream": stream, "Nats-Msg-Id": insert, ...(id !== insert && { "Job-Insert": insert }), ...((id !== insert || due) && { "Job-Id": id }),
    ...(recorded ? { "Job-Keep": duration(u.keep ?? 0) } : u && { "Nats-Expected-Last-Subject-Sequence": "0" }),
  });
  let to = key.job;
  if (due) {
    Object.assign(headers, { "Nats-Schedule": "@at " + rfc3339(new Date(due)), "Nats-Schedule-Target": to });
    to = recorded ? key.later : `${key.later}.${encodeToken(id)}`; // one schedule each, or the next would replace this one
  }
  const p: Plan = { key, id, insert, to, headers, data, job, due };
  if (recorded) expect(p);
  return p;
}

/** Makes the server refuse a job unless the last message of its key is the given, 0 for none. */
export function expect(p: Plan, sequence = 0): void {
  Object.assign(p.headers, { "Nats-Expected-Last-Subject-Sequence": String(sequence), "Nats-Expected-Last-Subject-Sequence-Subject": p.key.any });
}
