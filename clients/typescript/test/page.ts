// The examples of docs/clients.md.
import type { Event, Item, Place } from "expediter";

declare const notifier: string, enricherURL: string, importerURL: string, token: string;
declare const places: Place[], event: Event, lastEventID: string, signal: AbortSignal;
declare function show(results: Place[]): void;
declare function keep(id: string, item: Item): void;

import { Enricher, Importer, Inbox, merge, Publisher } from "expediter";

await new Publisher({ url: notifier, token }).publish({ event_id: "order-7-paid", event_type: "PAID", aggregate_type: "ORDER", user_id: "ada" });

const enricher = new Enricher({ url: enricherURL, token });
const answer = await enricher.enrich({ cityText: "Haifa", results: places });
show(answer.results);
for await (const update of enricher.updates(answer)) show(merge(answer.results, update));

const importer = new Importer({ url: importerURL, token });
const job = await importer.submit({ owner_id: "ada", url: "https://example.org/cake.html" });
for await (const state of importer.follow(job.job_id)) console.log(state.status, state.progress);

const inbox = new Inbox({ url: notifier, token, user: "ada", type: "CUSTOMER" });
for await (const { id, item } of inbox.live({ lastEventID, signal })) keep(id, item);
await inbox.mark("read", ["order-7-paid"]);

import "expediter/element";

let current = "";
document.querySelector("expediter-bell")!.token = async (refused) => {
  if (current === "" || current === refused) current = await (await fetch("/inbox-token")).text();
  return current;
};

import { connect } from "@nats-io/transport-node";
import { Jobs, NatsPublisher } from "expediter/nats";

const nc = await connect({ servers: "nats://127.0.0.1:4222" });
await new NatsPublisher(nc, { source: "/orders" }).publish(event);
const jobs = new Jobs(nc, "JOBS");
await jobs.insert({ subject: "jobs.mail", args: { to: "ada" }, unique: { key: "order-7", keep: 24 * 3600e3 } });
await jobs.insert({ subject: "jobs.remind.7", args: {}, delay: 60_000 });
