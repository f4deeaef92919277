# Reads `go test -bench` output and prints the figures that the project promises, one line each.
function show(what, value) { printf "%-58s %s\n", what, value }
/^pkg:/ { pkg = $2; sub(/.*vpc-cni\/vpc-cni\//, "", pkg) }
/^Benchmark/ {
  for (i = 3; i < NF; i += 2) figure[pkg " " $(i + 1)] = $i
  if ($1 ~ /^BenchmarkParallelADD-/ && pkg == "e2e/bench") parallel = figure[pkg " ms/110-ADDs"]
  if ($1 ~ /^BenchmarkParallelADDAnnotated-/) annotated = figure[pkg " ms/110-ADDs"]
}
END {
  show("plugin, bytes (an empty Go program)", figure["cni plugin-bytes"] " (" figure["cni empty-bytes"] ")")
  show("plugin VERSION, p50 ms (an empty Go program; ratio)", figure["cni version-p50-ms"] " (" figure["cni empty-p50-ms"] "; " figure["cni version/empty"] ")")
  show("ADD by libcni, 200 one after another, p50 ms", figure["e2e/bench p50-ms/ADD"])
  show("110 ADDs at once, total ms (with the annotation)", parallel " (" annotated ")")
  show("forwarded round trip, us: 10 pods, 700 pods (ratio)", figure["ipamd/hostnet hostnet-us-10pods"] ", " figure["ipamd/hostnet hostnet-us-700pods"] " (" figure["ipamd/hostnet hostnet-ratio"] ")")
  show("  the same with two rules a pod", figure["ipamd/hostnet rules-us-10pods"] ", " figure["ipamd/hostnet rules-us-700pods"] " (" figure["ipamd/hostnet rules-ratio"] ")")
}
