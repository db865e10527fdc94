// Tests of the package as it is installed: tools/client packs it, and installs it in an empty project.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("a server that renders pages imports the elements", async () => {
  assert.equal("HTMLElement" in globalThis || "customElements" in globalThis, false);
  const { ExpediterBell, ExpediterInbox, Inbox } = await import("expediter/element");
  assert.equal(ExpediterBell.observedAttributes, ExpediterInbox.observedAttributes);
  assert.equal(typeof Inbox, "function");
  // @ts-expect-error it has no types: pages load it
  await import("expediter/expediter-inbox.js");
});

test("the package has what its users need, and nothing else", (t) => {
  const folder = dirname(dirname(fileURLToPath(import.meta.resolve("expediter"))));
  if (!folder.includes(sep + "node_modules" + sep)) return t.skip("it is not installed");
  const parts = ["element", "http", "index", "nats", "style", "wire"].flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => statSync(join(folder, name)).isFile());
  assert.deepEqual(files.map((name) => name.replaceAll(sep, "/")).sort(),
    ["LICENSE", "README.md", "package.json", "dist/expediter-inbox.js", ...parts].sort());
  const { license, repository } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  assert.equal(license, "Apache-2.0");
  assert.equal(repository.directory, "clients/typescript");
});
