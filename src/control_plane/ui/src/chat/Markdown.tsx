/** Text of a model, rendered as elements: nothing in it becomes HTML. */

import { memo, type ReactElement, type ReactNode, useMemo } from "react";

import { type Block, blocksOf, type Inline } from "./markdown.ts";

/** Memoized: only the part of an answer that grows is parsed again. */
export const Markdown = memo(function Markdown({ text }: { text: string }): ReactElement {
  const blocks = useMemo(() => blocksOf(text), [text]);
  return <div className="markdown">{blocks.map(block)}</div>;
});

function block(one: Block, key: number): ReactElement {
  switch (one.type) {
    case "paragraph":
      return <p key={key}>{one.inner.map(inline)}</p>;
    case "heading":
      // The page's own headings come before those of an answer.
      return (
        <p key={key} className="markdown-heading" role="heading" aria-level={Math.min(one.level + 2, 6)}>
          {one.inner.map(inline)}
        </p>
      );
    case "code":
      return (
        <pre key={key} className="code" tabIndex={0} data-language={one.language || undefined}>
          <code>{one.text}</code>
        </pre>
      );
    case "quote":
      return <blockquote key={key}>{one.blocks.map(block)}</blockquote>;
    case "rule":
      return <hr key={key} />;
    case "table":
      return (
        <div key={key} className="markdown-table" tabIndex={0}>
          <table>
            <thead>
              <tr>
                {one.head.map((cell, index) => (
                  <th key={index}>{cell.map(inline)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {one.rows.map((row, index) => (
                <tr key={index}>
                  {/* Its own cells only: a wide head and many short rows would be millions. */}
                  {row.slice(0, one.head.length).map((cell, column) => (
                    <td key={column}>{cell.map(inline)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "list": {
      const items = one.items.map((item, index) => <li key={index}>{item.map(tight)}</li>);
      return one.ordered ? (
        <ol key={key} start={one.start}>
          {items}
        </ol>
      ) : (
        <ul key={key}>{items}</ul>
      );
    }
  }
}

/** Renders the first paragraph of an item without a margin of its own. */
function tight(one: Block, key: number): ReactNode {
  return one.type === "paragraph" && key === 0 ? <span key={key}>{one.inner.map(inline)}</span> : block(one, key);
}

function inline(one: Inline, key: number): ReactNode {
  switch (one.type) {
    case "text":
      return one.text;
    case "code":
      return <code key={key}>{one.text}</code>;
    case "strong":
      return <strong key={key}>{one.inner.map(inline)}</strong>;
    case "em":
      return <em key={key}>{one.inner.map(inline)}</em>;
    case "del":
      return <del key={key}>{one.inner.map(inline)}</del>;
    case "link":
      return (
        <a key={key} href={one.href} title={one.href} target="_blank" rel="noopener noreferrer nofollow">
          {one.inner.map(inline)}
        </a>
      );
  }
}
