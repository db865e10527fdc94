// Requests that are repeated while that can help, and event streams that come back with the id of the last event.
import type { FieldError } from "./wire.js";

/** How a service is reached. */
export interface Options {
  /** The address of the service, such as https://notifier.example.com. */
  url: string;
  /**
   * A key or access token, or a function that returns one in force; it is asked again for each request. When the service refuses a
   * token (401), the function gets that token, and the request is made with another one that it returns.
   */
  token?: string | ((refused?: string) => string | Promise<string>);
  /** For how many milliseconds a request is repeated. Defaults to 30000. */
  patience?: number;
  /** How many milliseconds a stream waits before it comes back. Defaults to what the service says, about 2000. */
  pause?: number;
  fetch?: typeof fetch;
}

/** The service refused a request (RFC 9457). */
export class Problem extends Error {
  constructor(readonly status: number, readonly code: string, detail: string, readonly errors: FieldError[] = []) {
    super(`${status} ${code} ${detail}`.replaceAll("  ", " "));
    this.name = "Problem";
  }
}

/** Waits, or throws when the signal ends. */
export const sleep = (ms: number, signal?: AbortSignal): Promise<void> => new Promise((resolve, reject) => {
  signal?.throwIfAborted();
  const stop = (): void => { clearTimeout(timer); reject(signal?.reason); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

/** Any id as one segment of a path. */
export function segment(id: string): string {
  if (id === "." || id === "..") throw new Problem(400, "", `no address can hold the id "${id}"`);
  return encodeURIComponent(id);
}

/** A random id of 22 characters. */
export const randomID = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(22)), (byte) => "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"[byte & 63]).join("");

async function problem(answer: Response): Promise<Problem> {
  const body = await answer.json().catch(() => ({})) as { code?: string; detail?: string; errors?: FieldError[] };
  return new Problem(answer.status, body.code ?? "", body.detail ?? answer.statusText, body.errors);
}

const passing = (status: number): boolean => status === 429 || status === 507 || (status >= 500 && status !== 501);
const retryAfter = (answer: Response): number => Number(answer.headers.get("Retry-After") ?? 0) * 1000 || 0;

/** Waits for what a page gives, which may never come, until the signal ends. */
const until = <T>(signal: AbortSignal, given: T | Promise<T>): Promise<T> => new Promise((resolve, reject) => {
  signal.throwIfAborted();
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  Promise.resolve(given).then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
});

async function send(o: Options, path: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  const { token } = o, ask = async (refused?: string): Promise<string | undefined> =>
    typeof token === "function" ? until(init.signal, token(refused)) : token;
  const once = (bearer?: string): Promise<Response> => {
    const headers = new Headers(init.headers);
    if (bearer) headers.set("Authorization", "Bearer " + bearer);
    return (o.fetch ?? fetch)(new URL(o.url.replace(/\/$/, "") + path, globalThis.location?.href), { ...init, headers });
  };
  const first = await ask(), answer = await once(first);
  if (answer.status !== 401 || typeof token !== "function") return answer;
  const second = await ask(first);
  if (!second || second === first) return answer;
  await answer.body?.cancel();
  return once(second);
}

/**
 * Sends a request and returns its answer. It is repeated after an answer that passes and when none comes, so it must change
 * nothing when it is made twice: those of this client have an id. One try lasts 20 seconds at most: what hangs is repeated, too.
 */
export async function request<T>(o: Options, path: string, init: RequestInit = {}, signal?: AbortSignal, oneTry = 20_000): Promise<T> {
  const end = Date.now() + (o.patience ?? 30_000);
  for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
    let wait = pause * (0.5 + Math.random()), failed: unknown;
    try {
      const limit = AbortSignal.timeout(oneTry);
      const answer = await send(o, path, { ...init, signal: signal ? AbortSignal.any([signal, limit]) : limit });
      if (answer.ok) return await answer.json() as T;
      failed = await problem(answer);
      if (!passing(answer.status)) throw failed;
      wait = Math.max(wait, retryAfter(answer));
    } catch (err) {
      signal?.throwIfAborted();
      if (err instanceof Problem) throw err;
      failed ??= err;
    }
    if (Date.now() + wait > end) throw failed;
    await sleep(wait, signal);
  }
}

/** A server-sent event, with the id to go on after it. */
export interface Sent { id: string; type: string; data: unknown }

/** Where and until when to read a stream. */
export interface Following { lastEventID?: string | undefined; signal?: AbortSignal | undefined; connected?: ((there: boolean) => void) | undefined }

/** A stream without any byte for so long is dead: the services send a heartbeat every 15 seconds. */
const silence = 45_000;

/** Yields the events of a stream, each once, through any number of disconnects. It returns when the service says that there are no more. */
export async function* stream(o: Options, path: string, f: Following = {}): AsyncGenerator<Sent, void, void> {
  let last = f.lastEventID ?? "", retry = o.pause ?? 2000, failures = 0;
  while (!f.signal?.aborted) {
    const cut = new AbortController(), signal = f.signal ? AbortSignal.any([f.signal, cut.signal]) : cut.signal;
    let wait = 0, timer: ReturnType<typeof setTimeout> | undefined;
    const alive = (): void => { clearTimeout(timer); timer = setTimeout(() => cut.abort(), silence); };
    try {
      alive();
      const answer = await send(o, path, { headers: { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) }, signal, cache: "no-store" });
      if (answer.status === 204) return;
      if (!answer.ok) {
        if (!passing(answer.status)) throw await problem(answer);
        wait = retryAfter(answer);
      } else {
        f.connected?.(true);
        for await (const e of parse(answer.body!, last, alive, (ms) => { retry = o.pause ?? ms; })) {
          last = e.id;
          failures = 0;
          yield e;
        }
      }
    } catch (err) {
      if (f.signal?.aborted) return;
      if (err instanceof Problem) throw err;
    } finally {
      clearTimeout(timer);
      cut.abort(); // also when the reader has left
    }
    f.connected?.(false);
    wait = Math.max(wait, Math.min(retry * 2 ** failures++, 30_000) * (0.5 + Math.random() / 2));
    await sleep(wait, f.signal).catch(() => undefined);
  }
}

/** Reads events as the HTML standard has them. What a cut leaves unfinished is no event. */
async function* parse(body: ReadableStream<Uint8Array>, id: string, alive: () => void, retry: (ms: number) => void): AsyncGenerator<Sent> {
  const reader = body.getReader(), decoder = new TextDecoder();
  let rest = "", type = "", data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const [, name = "", text = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        if (name === "id") id = text;
        else if (name === "event") type = text;
        else if (name === "data") data.push(text);
        else if (name === "retry" && /^\d+$/.test(text)) retry(Number(text));
        if (line !== "") continue;
        if (data.length > 0) yield { id, type: type || "message", data: JSON.parse(data.join("\n")) };
        [type, data] = ["", []];
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
