import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";

import { blocksOf, inlineOf } from "./markdown.ts";
import { Markdown } from "./Markdown.tsx";

const html = (text: string): string => renderToStaticMarkup(createElement(Markdown, { text })).replace(/^<div class="markdown">|<\/div>$/g, "");

describe("Markdown", () => {
  it.each([
    ["echo: hi", "<p>echo: hi</p>"],
    ["one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"],
    ["**bold**, *slanted*, ~~gone~~ and `a < b`", "<p><strong>bold</strong>, <em>slanted</em>, <del>gone</del> and <code>a &lt; b</code></p>"],
    ["***", "<hr/>"],
    ["snake_case_name and 2*3*4", "<p>snake_case_name and 2*3*4</p>"],
    ["mcp__files__read and a__b__c", "<p>mcp__files__read and a__b__c</p>"],
    ["__bold__, (__a__b__) and a**b**c", "<p><strong>bold</strong>, (<strong>a__b</strong>) and a<strong>b</strong>c</p>"],
    ["\\*not slanted\\*", "<p>*not slanted*</p>"],
    ["- one\n- two\n  - deep\n- three", "<ul><li><span>one</span></li><li><span>two</span><ul><li><span>deep</span></li></ul></li><li><span>three</span></li></ul>"],
    ["3. c\n4. d", '<ol start="3"><li><span>c</span></li><li><span>d</span></li></ol>'],
    ["1. a\n\n2. b\n\nend", '<ol start="1"><li><span>a</span></li><li><span>b</span></li></ol><p>end</p>'],
    ["> quoted\n> more\n\nend", "<blockquote><p>quoted\nmore</p></blockquote><p>end</p>"],
    ["# Title", '<p class="markdown-heading" role="heading" aria-level="3">Title</p>'],
    ["## Title ##  ", '<p class="markdown-heading" role="heading" aria-level="4">Title</p>'],
    ["# C#", '<p class="markdown-heading" role="heading" aria-level="3">C#</p>'],
    ["# #", '<p class="markdown-heading" role="heading" aria-level="3"></p>'],
    ["~~~ sh -x\nls\n~~~", '<pre class="code" tabindex="0" data-language="sh"><code>ls</code></pre>'],
    ["#no-heading", "<p>#no-heading</p>"],
    ["```rust\nlet a = *b;\n\n# c\n```\nend", '<pre class="code" tabindex="0" data-language="rust"><code>let a = *b;\n\n# c</code></pre><p>end</p>'],
    ["```\nstill growing", '<pre class="code" tabindex="0"><code>still growing</code></pre>'],
    ["| a | b |\n|---|:-:|\n| 1 | `x|y` \\| z |", '<div class="markdown-table" tabindex="0"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>`x</td></tr></tbody></table></div>'],
    ["a|b\n :-- | --: \n1", '<div class="markdown-table" tabindex="0"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody></tbody></table></div><p>1</p>'],
    // A row has no cells beyond its own.
    ["|a|b|\n|-|-|\n|1|", '<div class="markdown-table" tabindex="0"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table></div>'],
  ])("renders %j", (text, expected) => {
    expect(html(text)).toBe(expected);
  });

  it("is never HTML, nor a link that runs something or loads something by itself", () => {
    for (const text of [
      "<script>alert(1)</script>",
      "<img src=x onerror=alert(1)>",
      "[x](javascript:alert(1))",
      "[x](JaVaScRiPt:alert(1))",
      "[x](data:text/html,<script>1</script>)",
      "[x](vbscript:x)",
      "[x](/ui/relative)",
      "![x](javascript:alert(1))",
      "**[x](javascript:1)**",
      "- <b onclick=x>y</b>",
    ]) {
      const shown = html(text);
      expect(shown, text).not.toMatch(/<(script|img|a|b|iframe)\b/);
    }
    expect(html("![pixel](https://example.com/p.png)")).not.toContain("<img");
  });

  it("opens links in a page of their own that learns nothing of this one", () => {
    const attributes = 'href="https://example.com/a_(b)?q=1&amp;r=2" title="https://example.com/a_(b)?q=1&amp;r=2" target="_blank" rel="noopener noreferrer nofollow"';
    expect(html("[docs](https://example.com/a_(b)?q=1&r=2)")).toBe(`<p><a ${attributes}>docs</a></p>`);
    expect(inlineOf("see https://example.com/x.")).toEqual([
      { type: "text", text: "see " },
      { type: "link", href: "https://example.com/x", inner: [{ type: "text", text: "https://example.com/x" }] },
      { type: "text", text: "." },
    ]);
  });

  it("has no link within a link", () => {
    const text = (text: string) => ({ type: "text", text });
    const link = (...inner: object[]) => [{ type: "link", href: "https://evil.example", inner }];
    expect(inlineOf("[https://a.example](https://evil.example)")).toEqual(link(text("https://a.example")));
    expect(inlineOf("[to **https://a.example**](https://evil.example)")).toEqual(link(text("to "), { type: "strong", inner: [text("https://a.example")] }));
  });

  it("reads what is nested or repeated without end in a moment", () => {
    // Of the processor: the machine may be busy with something else.
    const began = process.cpuUsage();
    const spans = ["*a".repeat(4000), "[".repeat(8000), "`a".repeat(4000), "**a ".repeat(2000), "__a ".repeat(2000), "_a_".repeat(2600), "[a](".repeat(2000)];
    const blocks = [">".repeat(4000), "- ".repeat(4000), "| - ".repeat(2000), `${"|".repeat(4000)}\n${"-|".repeat(4000)}`];
    const blanks = " ".repeat(40_000);
    const long = [`# a${blanks}b`, `# ${blanks.slice(0, 2000)}\u2028`, `~~~${"a".repeat(40_000)}\``, `- ${blanks}\u2028`, `a|\n${blanks}-x`, `a|\n-${blanks}x`];
    // As long as a line may be that is no mere text.
    const most = " ".repeat(1980);
    const many = [`# a${most}b\n`, `# ${most}\u2028\n`, `${"~".repeat(1980)}\`\n`, `- ${most}\u2028\n`, `a|\n${most}-x\n\n`, `a|\n-${most}x\n\n`].map((line) => line.repeat(500));
    for (const text of [...spans, ...blocks, ...long, ...many]) {
      expect(blocksOf(text).length).toBeGreaterThan(0);
    }
    expect(process.cpuUsage(began).user / 1000).toBeLessThan(3000);
  });

  it("reads every beginning of an answer, as it streams in", () => {
    const whole = "# T\n\n- a **b\n  - c**\n\n1. x `y\n\n> q [l](https://e\n\n| a |\n|-\n```\ncode";
    for (let end = 0; end <= whole.length; end++) expect(html(whole.slice(0, end))).not.toContain("undefined");
  });
});
