// Writes each built file a second and a third time, compressed: browsers take brotli over TLS and on loopback, gzip everywhere.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = process.argv[2] ?? "dist";

for (const name of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
  const path = join(dist, name);
  if (!statSync(path).isFile() || /\.(br|gz|gitignore)$/.test(name)) continue;
  const bytes = readFileSync(path);
  const brotli = brotliCompressSync(bytes, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
  });
  if (brotli.length < bytes.length) {
    writeFileSync(`${path}.br`, brotli);
    writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
  }
}
