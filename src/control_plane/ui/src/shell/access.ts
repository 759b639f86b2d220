/** Commands for an administrator, by which a user gets a ClusterRole. */

/** Label of RFC 1123, as the name of a Kubernetes namespace is. */
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const ACCOUNT = /^system:serviceaccount:([^:]+):([^:]+)$/;

/** Quotes a word for a POSIX shell, if it has characters that a shell would interpret. */
function quoted(word: string): string {
  return /^[\w.:@%+=,/-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/** Reports whether a namespace can have this name. */
export function isNamespace(name: string): boolean {
  return LABEL.test(name);
}

/**
 * Returns the command that gives a user a ClusterRole in one namespace, and the one that gives it in all.
 *
 * Without a namespace the first is for that of the user's service account. A user of another kind has none: the command says
 * NAMESPACE, which is left to the administrator.
 */
export function bindCommands(role: string, user: string, namespace?: string): { one: string; all: string } {
  const account = ACCOUNT.exec(user);
  const subject = account ? `--serviceaccount=${quoted(`${account[1]}:${account[2]}`)}` : `--user=${quoted(user)}`;
  const who = (account ? `${account[1]}-${account[2]}` : user).replace(/[^A-Za-z0-9.]+/g, "-").replace(/^-|-$/g, "");
  const binding = `${role}-${who} --clusterrole=${role} ${subject}`;
  return {
    one: `kubectl create rolebinding ${binding} --namespace=${quoted(namespace ?? account?.[1] ?? "NAMESPACE")}`,
    all: `kubectl create clusterrolebinding ${binding}`,
  };
}
