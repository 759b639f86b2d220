import type { KubeObject } from "../api/types.ts";

/** Owner reference, as Kubernetes defines it. */
interface OwnerReference {
  kind: string;
  name: string;
  controller?: boolean;
}

/** Returns the object that made this one and keeps it as it is: the controller among its owners. */
export function ownerOf({ ownerReferences }: KubeObject["metadata"]): { kind: string; name: string } | undefined {
  const owners = ownerReferences as OwnerReference[] | undefined;
  return owners?.find((owner) => owner.controller);
}
