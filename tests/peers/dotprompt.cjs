// What google/dotprompt makes of prompts: reads a JSON array of cases from standard input, writes one of results.
'use strict';

const { Dotprompt } = require('dotprompt');

// Standard output is for the results alone. What the library logs (a broken frontmatter) is in them, too.
for (const level of ['debug', 'info', 'log', 'warn', 'error']) console[level] = () => {};

/** @param {{source: string, input: object, history: object[], partials: Record<string, string>}} prompt */
async function render({ source, input, history, partials }) {
  const dotprompt = new Dotprompt();
  // One Handlebars is shared by all instances, with its partials.
  dotprompt.handlebars.partials = {};
  for (const [name, text] of Object.entries(partials)) dotprompt.definePartial(name, text);
  const parsed = dotprompt.parse(source);
  const metadata = await dotprompt.renderMetadata(parsed);
  // The library leaves the defaults of the frontmatter to its caller.
  const defaults = parsed.input?.default ?? {};
  const rendered = await dotprompt.render(source, { input, messages: history }, { input: { default: defaults } });
  return {
    messages: rendered.messages.map(({ role, content }) => ({ role, content })),
    variables: { ...defaults, ...input },
    inputSchema: metadata.input?.schema ?? null,
    outputSchema: metadata.output?.schema ?? null,
    model: metadata.model ?? null,
    config: metadata.config ?? {},
    tools: metadata.tools ?? [],
  };
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const results = [];
  for (const prompt of JSON.parse(Buffer.concat(chunks).toString('utf8'))) {
    results.push(await render(prompt).catch((error) => ({ error: String(error.message ?? error) })));
  }
  process.stdout.write(JSON.stringify(results));
}

main();
