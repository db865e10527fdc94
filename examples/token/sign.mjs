// Prints a token for a user. Arguments: the file of the key that `expediter keys signer` made, and the user.
import { createHmac, createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";

const [file, user] = process.argv.slice(2);
console.log(tokenOf(JSON.parse(readFileSync(file, "utf8")), user));

function tokenOf(key, user) {
  const iat = Math.floor(Date.now() / 1000);
  const claims = { aud: "notifier", sub: user, recipient_type: "CUSTOMER", scope: "read mark", iat, exp: iat + 900 };
  const text = [{ alg: key.alg, kid: key.kid }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  const signature = key.alg === "EdDSA" ? sign(null, Buffer.from(text), createPrivateKey({ key, format: "jwk" }))
    : createHmac("sha256", Buffer.from(key.k, "base64url")).update(text).digest();
  return text + "." + signature.toString("base64url");
}
