#!/bin/bash
# Renders the components that docs/clients.md shows for React and Vue on a server, in an empty project that has the packed client.
#
#   frameworks.sh DOCUMENT     in the project
set -euo pipefail
block() { awk -v of="\`\`\`$1" '$0 == of { on = 1; next } /^```/ { on = 0 } on' "$2"; }
npm install --no-audit --no-fund --prefer-offline --silent react@19.2.4 react-dom@19.2.4 vue@3.5.29 esbuild@0.28.2
block jsx "$1" >bell.jsx
block vue "$1" >bell.vue
cat >vue.mjs <<'END'
import { readFileSync, writeFileSync } from "node:fs";
import { compileScript, parse } from "vue/compiler-sfc";
const isCustomElement = (tag) => tag.startsWith("expediter-");
const { descriptor, errors } = parse(readFileSync("bell.vue", "utf8"), { templateParseOptions: { isCustomElement } });
if (errors.length > 0) throw errors[0];
const script = compileScript(descriptor, { id: "bell", inlineTemplate: true, templateOptions: { ssr: true, compilerOptions: { isCustomElement } } });
writeFileSync("bell.vue.js", script.content);
END
node vue.mjs
cat >render.jsx <<'END'
import { renderToString as react } from "react-dom/server";
import { createSSRApp } from "vue";
import { renderToString as vue } from "vue/server-renderer";
import { Bell } from "./bell.jsx";
import Other from "./bell.vue.js";
console.log(react(<Bell user="ada" token="t" onUnread={() => {}} />));
console.log(await vue(createSSRApp(Other, { user: "ada", token: "t" })));
END
npx --no-install esbuild render.jsx --bundle --platform=node --format=esm --jsx=automatic --log-level=warning --outfile=render.mjs \
	--banner:js='import { createRequire } from "node:module"; const require = createRequire(import.meta.url);'
node render.mjs >rendered
cat rendered
[[ $(grep -c '^<expediter-bell user="ada"' rendered) -eq 2 ]]
