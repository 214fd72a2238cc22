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
