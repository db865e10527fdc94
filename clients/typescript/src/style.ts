// The style sheet of both elements. Colours follow the color-scheme that the page gives them.
export const css = `
:host{--accent:var(--expediter-accent,light-dark(#0b57d0,#a8c7fa));--ink:var(--expediter-ink,light-dark(#1b1b1f,#e4e4e9));
--quiet:var(--expediter-quiet,light-dark(#55565c,#b0b1b8));--paper:var(--expediter-paper,light-dark(#fff,#1b1b1f));
--line:var(--expediter-line,light-dark(#c9cacf,#47484e));display:block;color:var(--ink);background:var(--paper);
font:var(--expediter-font,1rem/1.5 system-ui,sans-serif);overflow-wrap:anywhere}
:host([hidden]),[hidden]{display:none!important}*{box-sizing:border-box}
[part=header]{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem 1rem;padding:.5rem 1rem}[part=mark-all]{margin-inline-start:auto}
h2{font-size:1.25em;margin:0}p{margin:0}[part=count],[part=text],[part=time],[part=empty],[part=note]{color:var(--quiet)}
[part=empty],[part=note]:not(:empty){padding:1rem;border-block-start:1px solid var(--line)}
button{font:inherit;color:var(--accent);background:none;border:1px solid transparent;border-radius:.5rem;min-height:2.75rem;
min-width:2.75rem;cursor:pointer}button:hover{border-color:currentColor}
:focus-visible{outline:3px solid var(--accent);outline-offset:-3px}h2:focus-visible{outline-offset:3px}
ul{list-style:none;margin:0;padding:0}li{display:flex;gap:.5rem;padding:.75rem 1rem;border-block-start:1px solid var(--line)}
li>div{flex:1;min-width:0}[part=link]{color:var(--accent);text-align:start;overflow-wrap:anywhere}
button[part=link]{color:inherit;font-weight:inherit;border:0;padding:0;min-height:1.5rem}
li.unread [part=title]{font-weight:700}[part=text],[part=time]{display:block;font-size:.9375em}
/* The bell has the colour of the page around it; its panel is an inbox. */
:host(expediter-bell){display:inline-block;color:inherit;background:none}[part=bell]{position:relative;color:inherit;padding:.5rem}
[part=bell]::before{content:"";display:block;width:24px;height:24px;margin:auto;background:currentColor;
clip-path:path("M12 2a6 6 0 0 0-6 6v5l-2 4h16l-2-4V8a6 6 0 0 0-6-6zM9.5 19a2.5 2.5 0 0 0 5 0z")}
@media(forced-colors:active){[part=bell]::before{forced-color-adjust:none;background:ButtonText}}
[part=badge]{position:absolute;inset-block-start:0;inset-inline-end:0;min-inline-size:1.25rem;padding-inline:.25rem;border-radius:1rem;
font:700 .75rem/1.25rem system-ui,sans-serif;color:var(--paper);background:var(--accent)}
[part=status]{position:absolute;inline-size:1px;block-size:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
[part=panel]{position:fixed;inset:auto;margin:0;padding:0;overflow:auto;color:var(--ink);background:var(--paper);
border:1px solid var(--line);border-radius:.75rem;box-shadow:0 .5rem 2rem #0004}`;
