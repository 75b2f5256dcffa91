// Drives a running Keyward server through the official TypeScript client of version 1, unmodified, and checks every
// answer against the v1 contract; otherwise as drive.mjs.
import assert from "node:assert/strict";
import { check, count, requestIds } from "./typescript_v1/support.mjs";

// Each makes its checks while it is imported, one after the other.
await import("./typescript_v1/refusals.mjs");
await import("./typescript_v1/apis.mjs");
await import("./typescript_v1/permissions.mjs");
await import("./typescript_v1/identities.mjs");
await import("./typescript_v1/keys.mjs");
await import("./typescript_v1/change_key.mjs");
await import("./typescript_v1/key_access.mjs");
await import("./typescript_v1/verify_key.mjs");
await import("./typescript_v1/ratelimits.mjs");
await import("./typescript_v1/migrations.mjs");
await import("./typescript_v1/analytics.mjs");

await check("every answer that tells its request id has its own", () => {
  assert.notEqual(requestIds.length, 0);
  assert.equal(new Set(requestIds).size, requestIds.length);
});

console.log(`${count.passed} passed, ${count.failed} failed`);
process.exit(count.failed === 0 ? 0 : 1);
