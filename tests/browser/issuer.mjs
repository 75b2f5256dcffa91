// An issuer of OpenID Connect: panva's certified provider, with a page to log in, on this machine while it is needed.

import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";
import { URL_OF } from "./support.mjs";

const ISSUER = process.env.KEYWARD_OIDC_ISSUER;

/** What it says of people, by the name with which they log in. */
export const ACCOUNTS = {
  alan: { email: "alan@example.com", email_verified: true },
  barbara: { email: "barbara@example.com", email_verified: true },
  careless: { email: "careless@example.com", email_verified: false },
  distant: { email: "distant@elsewhere.example", email_verified: true },
  nobody: {},
};

/** A key of its own: by RS256 or by ES256. */
function key(alg) {
  const pair = alg === "RS256" ? generateKeyPairSync("rsa", { modulusLength: 2048 }) : generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...pair.privateKey.export({ format: "jwk" }), alg, use: "sig", kid: alg };
}

/** Starts it; the answer stops it. One that signs in another way has other keys. */
export async function start(alg) {
  const provider = new Provider(ISSUER, {
    clients: [
      {
        client_id: process.env.KEYWARD_OIDC_CLIENT_ID,
        client_secret: process.env.KEYWARD_OIDC_CLIENT_SECRET,
        redirect_uris: [`${URL_OF}/dashboard/login/oidc/callback`],
        id_token_signed_response_alg: alg,
      },
    ],
    jwks: { keys: [key(alg)] },
    pkce: { methods: ["S256"], required: () => true },
    cookies: { keys: ["a key of a provider that is thrown away"] },
    claims: { email: ["email", "email_verified"], profile: ["name"] },
    features: { devInteractions: { enabled: false } },
    findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId, ...ACCOUNTS[accountId] }) }),
    // Everybody has agreed already to be told of.
    loadExistingGrant: async ({ oidc }) => {
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope("openid email profile");
      await grant.save();
      return grant;
    },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  });
  const server = createServer((request, response) =>
    request.url.startsWith("/interaction/") ? logIn(provider, request, response) : provider.callback()(request, response),
  );
  await new Promise((done) => server.listen(new URL(ISSUER).port, "127.0.0.1", done));
  return () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
}

async function logIn(provider, request, response) {
  if (request.method === "GET") {
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>The house login</title><link rel="icon" href="data:,">
      <form method="post"><label>Name <input name="login"></label><button>Log in</button>
      <button name="cancel" value="yes">Cancel</button></form>`);
    return;
  }
  let body = "";
  for await (const part of request) body += part;
  const form = new URLSearchParams(body);
  const result = form.has("cancel") ? { error: "access_denied" } : { login: { accountId: form.get("login") } };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}
