/**
 * Parser of the Markdown that models write: headings, paragraphs, lists, quotes, tables, code and emphasis.
 *
 * The result is data, which `Markdown.tsx` renders as elements. There is no HTML in it: tags stay text, pictures become links so
 * that nothing is loaded, and a link that is not of http, https or mailto stays text.
 */

export type Inline =
  | { type: "text" | "code"; text: string }
  | { type: "strong" | "em" | "del"; inner: Inline[] }
  | { type: "link"; href: string; inner: Inline[] };

export type Block =
  | { type: "paragraph" | "heading"; inner: Inline[]; level: number }
  | { type: "code"; text: string; language: string }
  | { type: "list"; ordered: boolean; start: number; items: Block[][] }
  | { type: "quote"; blocks: Block[] }
  | { type: "table"; head: Inline[][]; rows: Inline[][][] }
  | { type: "rule" };

/** Limit of quotes and lists within one another; deeper ones stay text. */
const DEPTH = 8;

/** Longest line in which the mark of a block is looked for, in characters; a longer one is text. */
const LONGEST_LINE = 2000;

// Each pattern takes time linear in the line: no two neighbouring repetitions match the same character.
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+([^]*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?([^]*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+([^]*))?$/;
/** Of a line without the blanks around it. */
const DELIMITERS = /^\|? *:?-+:? *(?:\| *:?-+:? *)*\|?$/;

function read(pattern: RegExp, line: string): RegExpExecArray | null {
  return line.length > LONGEST_LINE ? null : pattern.exec(line);
}

export function blocksOf(text: string): Block[] {
  return parse(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function parse(lines: readonly string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  const line = (index: number): string => lines[index] ?? "";
  while (at < lines.length) {
    const here = line(at);
    const fence = read(FENCE, here);
    const heading = read(HEADING, here);
    if (!here.trim()) {
      at++;
    } else if (fence) {
      const mark = fence[1] ?? "";
      const begin = ++at;
      // A fence that is not closed yet, as in an answer that still grows, goes to the end.
      while (at < lines.length && !closes(line(at), mark)) at++;
      blocks.push({ type: "code", text: lines.slice(begin, at).join("\n"), language: fence[2]?.trim().split(/\s/, 1)[0] ?? "" });
      at++;
    } else if (heading) {
      blocks.push({ type: "heading", level: heading[1]?.length ?? 1, inner: inlineOf(titleOf(heading[2] ?? "")) });
      at++;
    } else if (read(RULE, here)) {
      blocks.push({ type: "rule" });
      at++;
    } else if (read(QUOTE, here) && depth < DEPTH) {
      const begin = at;
      while (at < lines.length && read(QUOTE, line(at))) at++;
      blocks.push({ type: "quote", blocks: parse(lines.slice(begin, at).map((one) => QUOTE.exec(one)?.[1] ?? ""), depth + 1) });
    } else if (read(ITEM, here) && depth < DEPTH) {
      const [list, next] = listAt(lines, at, depth);
      blocks.push(list);
      at = next;
    } else if (here.includes("|") && line(at + 1).includes("-") && read(DELIMITERS, line(at + 1).trim())) {
      const head = cells(here);
      const rows: Inline[][][] = [];
      for (at += 2; at < lines.length && line(at).includes("|"); at++) rows.push(cells(line(at)));
      blocks.push({ type: "table", head, rows });
    } else {
      const begin = at++;
      while (at < lines.length && line(at).trim() && !interrupts(line(at))) at++;
      blocks.push({ type: "paragraph", level: 0, inner: inlineOf(lines.slice(begin, at).join("\n").trim()) });
    }
  }
  return blocks;
}

/** Returns the text of a heading, without the marks that close it. */
function titleOf(tail: string): string {
  const text = tail.trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  const begin = text.slice(0, end).trimEnd();
  return begin.length < end || !begin ? begin : text;
}

function closes(line: string, mark: string): boolean {
  const end = line.trim();
  return end.length >= mark.length && end === (mark[0] ?? "").repeat(end.length);
}

/** Reports whether a line ends a paragraph without a blank line before it. */
function interrupts(line: string): boolean {
  return [FENCE, HEADING, QUOTE, RULE, ITEM].some((pattern) => read(pattern, line));
}

/** Reads the list that begins here; returns it, and the line after it. */
function listAt(lines: readonly string[], begin: number, depth: number): [Block, number] {
  const first = read(ITEM, lines[begin] ?? "");
  const indent = first?.[1]?.length ?? 0;
  const ordered = /\d/.test(first?.[2] ?? "");
  const items: Block[][] = [];
  let at = begin;
  for (;;) {
    const item = read(ITEM, lines[at] ?? "");
    if (!item || item[1]?.length !== indent || /\d/.test(item[2] ?? "") !== ordered || read(RULE, lines[at] ?? "")) break;
    const inner = [item[3] ?? ""];
    for (at++; at < lines.length; at++) {
      const line = lines[at] ?? "";
      const deep = line.length - line.trimStart().length;
      if (line.trim() ? deep <= indent && interrupts(line) : (lines[at + 1] ?? "").search(/\S/) <= indent) break;
      inner.push(line.slice(Math.min(deep, indent + 2)));
    }
    items.push(parse(inner, depth + 1));
    // A blank line between two items.
    if (!(lines[at] ?? "x").trim() && read(ITEM, lines[at + 1] ?? "")?.[1]?.length === indent) at++;
  }
  return [{ type: "list", ordered, start: ordered ? Number.parseInt(first?.[2] ?? "1", 10) : 1, items }, at];
}

function cells(line: string): Inline[][] {
  const inner = line.trim().replace(/^\||(?<!\\)\|$/g, "");
  return inner.split(/(?<!\\)\|/).map((cell) => inlineOf(cell.trim().replaceAll("\\|", "|")));
}

const SPANS =
  /(?<code>`+)(?<coded>[^`]|[^`][\s\S]*?[^`])\k<code>(?!`)|\\(?<escaped>[!-/:-@[-`{-~])|!?\[(?<label>[^[\]]*)\]\((?<target>[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"]*")?\)|\*\*(?=\S)(?<bold>[\s\S]*?\S)\*\*|(?<![\p{L}\p{N}_])__(?=\S)(?<heavy>[\s\S]*?\S)__(?![\p{L}\p{N}_])|~~(?=\S)(?<deleted>[\s\S]*?\S)~~|(?<![\p{L}\p{N}_])(?<em>[*_])(?=[^\s*_])(?<slanted>[\s\S]*?[^\s*_])\k<em>(?![\p{L}\p{N}_])|(?<url>https?:\/\/[^\s<>()[\]"'`*]+[^\s<>()[\]"'`*.,;:!?])/gu;

/** Longest paragraph in which spans are looked for, in characters. */
const LONGEST_SPANS = 8000;

/** Reads the spans of a text; `inLink`: it is the label of a link, in which there is no other link. */
export function inlineOf(text: string, depth = 0, inLink = false): Inline[] {
  if (depth > DEPTH || text.length > LONGEST_SPANS) return text ? [{ type: "text", text }] : [];
  const found: Inline[] = [];
  const within = (inner: string): Inline[] => inlineOf(inner, depth + 1, inLink);
  const plain = (more: string): void => {
    const last = found.at(-1);
    if (last?.type === "text") last.text += more;
    else if (more) found.push({ type: "text", text: more });
  };
  let end = 0;
  for (const match of text.matchAll(SPANS)) {
    const { coded, escaped, label, target, deleted, slanted, url } = match.groups ?? {};
    const bold = match.groups?.bold ?? match.groups?.heavy;
    plain(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (coded !== undefined) found.push({ type: "code", text: coded.trim() || coded });
    else if (escaped !== undefined) plain(escaped);
    else if (bold !== undefined) found.push({ type: "strong", inner: within(bold) });
    else if (deleted !== undefined) found.push({ type: "del", inner: within(deleted) });
    else if (slanted !== undefined) found.push({ type: "em", inner: within(slanted) });
    else if (inLink) plain(match[0]);
    else if (url !== undefined) found.push({ type: "link", href: url, inner: [{ type: "text", text: url }] });
    else if (target !== undefined && isSafe(target)) found.push({ type: "link", href: target, inner: label ? inlineOf(label, depth + 1, true) : [{ type: "text", text: target }] });
    else plain(match[0]);
  }
  plain(text.slice(end));
  return found;
}

/** Reports whether a link leads to an address that a page may open. */
function isSafe(target: string): boolean {
  return /^(?:https?:\/\/|mailto:)/i.test(target) && URL.canParse(target);
}
