import type { KubeObject } from "../api/types.ts";

/** Owner reference, as Kubernetes defines it. */
interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  controller?: boolean;
}

export interface Owner {
  kind: string;
  name: string;
  /** True for an object of this API: other APIs have an Agent or a Model too. */
  ours: boolean;
}

/** Returns the object that made this one and keeps it as it is: the controller among its owners. */
export function ownerOf({ ownerReferences }: KubeObject["metadata"]): Owner | undefined {
  const owners = ownerReferences as OwnerReference[] | undefined;
  const owner = owners?.find(({ controller }) => controller);
  return owner && { kind: owner.kind, name: owner.name, ours: owner.apiVersion.startsWith("agents.recif.dev/") };
}
