// Drives a running Keyward server through the official TypeScript clients, unmodified, and over
// plain HTTP where they lack an operation. Checks every answer against the v2 contract. It reads the
// KEYWARD_ variables that `run` exports, and it may run any number of times against the same server:
// every name it makes is new.
import assert from "node:assert/strict";
import { check, count, requestIds } from "./typescript/support.mjs";

// Each makes its checks while it is imported, one after the other.
await import("./typescript/authentication.mjs");
await import("./typescript/apis.mjs");
await import("./typescript/permissions.mjs");
await import("./typescript/identities.mjs");
await import("./typescript/keys.mjs");
await import("./typescript/change_key.mjs");
await import("./typescript/key_access.mjs");
await import("./typescript/verify_key.mjs");
await import("./typescript/limits_and_credits.mjs");
await import("./typescript/migrations.mjs");
await import("./typescript/recoverable_keys.mjs");
await import("./typescript/allowed_networks.mjs");
await import("./typescript/introspection.mjs");
await import("./typescript/gateways.mjs");
await import("./typescript/grants.mjs");
await import("./typescript/ratelimit.mjs");
await import("./typescript/ratelimit_package.mjs");
await import("./typescript/middlewares.mjs");

await check("every answer has its own request id", () => {
  assert.notEqual(requestIds.length, 0);
  assert.equal(new Set(requestIds).size, requestIds.length);
});

console.log(`${count.passed} passed, ${count.failed} failed`);
process.exit(count.failed === 0 ? 0 : 1);
