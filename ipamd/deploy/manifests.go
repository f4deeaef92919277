package deploy

import "embed"

// Manifests are the files of folder manifests, for who installs them from a program.
//
//go:embed manifests/*.yaml
var Manifests embed.FS
