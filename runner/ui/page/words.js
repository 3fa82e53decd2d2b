// Texts in the language of filters and columns (ledger/filter.hpp), as the page writes and reads them.

const value = `(?:"[^"]*"|'[^']*'|\\S)+`;

/** A name as filters write it: in quotes if it has spaces or signs. Null: there is no way to write it. */
export function quotedName(name) {
  if (/^[^\s,:=<>!()"']+$/.test(name)) return name;
  const quote = ['"', "'"].find((one) => !name.includes(one));
  return quote ? quote + name + quote : null;
}

export const splitColumns = (text) => text.match(/(?:"[^"]*"|'[^']*'|[^,])+/g) ?? [];

/** The value of the term `name:...` of a filter. */
export const termOf = (filter, name) => new RegExp(`(?:^|\\s)${name}:(${value})`).exec(filter)?.[1];
export const withoutTerm = (filter, name) => filter.replace(new RegExp(`(^|\\s)${name}:${value}`, "g"), "").trim();
