/** Characters that people do not see, or that turn the direction of writing. */

const HIDDEN = /[\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\ufff9-\ufffb]|(?![\n\t])\p{Cc}/gu;

/** Returns a text with each of them as its number: what a person approves must be what is sent. */
export function escapeHidden(text: string): string {
  return text.replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}
