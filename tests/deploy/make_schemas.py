"""Strict JSON schemas for the kinds that deploy/ uses, from the OpenAPI files that Kubernetes and the Prometheus operator publish.

usage: make_schemas.py KUBERNETES_MODULE_DIR OPERATOR_MODULE_DIR OUT_DIR
Strict: a key that the API does not know is an error, where the API server would drop it silently.
"""

import json
import os
import sys

import yaml

KINDS = {"Deployment": "io.k8s.api.apps.v1.Deployment", "Service": "io.k8s.api.core.v1.Service"}


def strict(schema):
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)
    return schema


def main():
    kubernetes, operator, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(kubernetes, "api/openapi-spec/swagger.json")) as file:
        definitions = strict(json.load(file)["definitions"])
    # Written as {"type": "string"} in the file, but numbers are accepted as well.
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    for kind, name in KINDS.items():
        schema = {"$ref": f"#/definitions/{name}", "definitions": definitions}
        with open(os.path.join(out, f"{kind.lower()}.json"), "w") as file:
            json.dump(schema, file)
    crd = os.path.join(operator, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml")
    with open(crd) as file:
        version = yaml.safe_load(file)["spec"]["versions"][0]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    with open(os.path.join(out, "servicemonitor.json"), "w") as file:
        json.dump(schema, file)


main()
