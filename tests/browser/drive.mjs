// Runs every check in order, each in one story: the later ones use what the earlier ones made.

import { close, summary } from "./support.mjs";
import * as beginning from "./checks/beginning.mjs";
import * as navigation from "./checks/navigation.mjs";
import * as firstSteps from "./checks/first_steps.mjs";
import * as rootKeys from "./checks/root_keys.mjs";
import * as analytics from "./checks/analytics.mjs";
import * as charts from "./checks/charts.mjs";
import * as logs from "./checks/logs.mjs";
import * as keys from "./checks/keys.mjs";
import * as oneTimeForms from "./checks/one_time_forms.mjs";
import * as rights from "./checks/rights.mjs";
import * as limits from "./checks/limits.mjs";
import * as gateways from "./checks/gateways.mjs";
import * as identities from "./checks/identities.mjs";
import * as audit from "./checks/audit.mjs";
import * as imports from "./checks/imports.mjs";
import * as people from "./checks/people.mjs";
import * as jobs from "./checks/jobs.mjs";
import * as rows from "./checks/rows.mjs";
import * as oidc from "./checks/oidc.mjs";
import * as plain from "./checks/plain.mjs";
import * as styleguide from "./checks/styleguide.mjs";
import * as looks from "./checks/looks.mjs";

const story = {};
try {
  const parts = [
    beginning, navigation, firstSteps, rootKeys, keys, oneTimeForms, rights, limits, gateways, identities, imports, analytics, charts,
    logs, audit, people, jobs, rows, oidc, plain, styleguide, looks,
  ];
  for (const part of parts) await part.run(story);
} finally {
  await close();
}
process.exitCode = summary() ? 0 : 1;
