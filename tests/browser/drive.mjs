// Runs every check in order, each in one story: the later ones use what the earlier ones made.

import { close, summary } from "./support.mjs";
import * as beginning from "./checks/beginning.mjs";
import * as rootKeys from "./checks/root_keys.mjs";
import * as people from "./checks/people.mjs";
import * as plain from "./checks/plain.mjs";
import * as looks from "./checks/looks.mjs";

const story = {};
try {
  for (const part of [beginning, rootKeys, people, plain, looks]) await part.run(story);
} finally {
  await close();
}
process.exitCode = summary() ? 0 : 1;
