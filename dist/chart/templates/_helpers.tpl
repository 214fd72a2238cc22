{{- /*
What the names of all objects begin with. The longest of them, that of the Service of the metrics, adds 35 characters
to it, and the name of a Service has 63 at most.
*/}}
{{- define "my-operator.fullname" -}}
{{- $name := default $.Chart.Name $.Values.nameOverride -}}
{{- $combined := printf "%s-%s" $.Release.Name $name -}}
{{- $full := default (ternary $.Release.Name $combined (contains $name $.Release.Name)) $.Values.fullnameOverride -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,26}[a-z0-9])?$" $full) -}}
{{- fail (printf "the names of the objects would begin with %s: set fullnameOverride to at most 28 lower case letters, digits and -, beginning with a letter" $full) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{- /* The image: by digest if there is one. */}}
{{- define "my-operator.image" -}}
{{- $image := $.Values.image -}}
{{- $tag := default $.Chart.AppVersion $image.tag -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- /*
What a shard's Deployment is named after the fullname, and the label of its pods. The first shard is the Deployment of
an installation without shards, so that no call of the webhooks fails when their number changes.
*/}}
{{- define "my-operator.ofShard" -}}
{{- ternary (printf "shard-%d" (int .)) "controller-manager" (gt (int .) 0) -}}
{{- end -}}

{{- /* The labels that all pods of the operator have, and no others. */}}
{{- define "my-operator.allPods" -}}
app.kubernetes.io/name: my-operator
{{- if eq (int $.Values.shards) 1 }}
control-plane: controller-manager
{{- end }}
{{- end -}}

{{- /* The chosen kinds, as files/kinds.yaml has them, in its order. */}}
{{- define "my-operator.kinds" -}}
{{- $names := list -}}
{{- $chosen := list -}}
{{- range $.Files.Get "files/kinds.yaml" | fromYamlArray -}}
{{- $names = append $names .name -}}
{{- if has .name $.Values.kinds -}}
{{- $chosen = append $chosen . -}}
{{- end -}}
{{- end -}}
{{- range $.Values.kinds -}}
{{- if not (has . $names) -}}
{{- fail (printf "kinds: %s is not one of %s" . (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $chosen -}}
{{- end -}}

{{- /* A file of config/ with the names of this release: `include "my-operator.file" (list $ "files/policy.yaml")`. */}}
{{- define "my-operator.file" -}}
{{- $root := index . 0 -}}
{{- $fullname := include "my-operator.fullname" $root -}}
{{- $root.Files.Get (index . 1)
  | replace "my-operator-system" "@NAMESPACE@"
  | replace "my-operator-" (printf "%s-" $fullname)
  | replace "the Lease my-operator" (printf "the Lease %s" $fullname)
  | replace "object.metadata.name == 'my-operator'" (printf "object.metadata.name == '%s'" $fullname)
  | replace "@NAMESPACE@" $root.Release.Namespace -}}
{{- end -}}
