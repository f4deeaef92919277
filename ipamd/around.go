package ipamd

import (
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/store"
)

// Options are a daemon's settings and what only tests change: an operator has no use for it.
type Options struct {
	Settings config.Settings
	Log      *slog.Logger
	Around   Around // nil: effects are just carried out

	// Times that a test cannot wait for; 0 is the usual.
	Audit      time.Duration // between two comparisons with the kernel; 30 s
	SurplusAge time.Duration // before addresses are given back; 3 min
	Settle     time.Duration // how long an unanswered request to the API server may still be carried out; 30 s
}

// Around carries out one effect of the daemon on the world by calling run, once or not at all, and passes on its error. Every
// call of EC2 and the metadata service, every file that is written, every change of the kernel, every answer to a plugin and
// every request to the API server goes through it under a name: a test can then end the process before or after each.
//
// Several steps have one name where nobody sees those between: "save write" and "conflist write" (folder, file and mode
// beside what is read: a torn file there is written over by the next), "socket make" (remove, bind and mode of a socket that
// has its name only after "socket publish"), "lock take" and "lock restore" (folder, file, flock, which ends with the process,
// and the number in it, which is for people), "http listen" (each start removes the socket that it finds), "pending collect"
// (each bad record is removed for itself), and "kernel write nftables" (one transaction). Without a name are, each harmless
// because a death there is one before or after its neighbour:
//   - the folders of socket and network configuration, and the look whether another server answers: as before "socket make"
//     and "conflist write";
//   - the name of the lock in lock's restore, which ends with the process: as before "lock restore";
//   - the network configuration's .new that is removed after a failed rename: as after "conflist replace", and the next
//     write replaces it;
//   - the refusal of a peer that is neither root nor the daemon's user: it gets no further, so that nothing was done for it;
//   - the HTTP sockets that are removed at an orderly end, and closing of any file or connection: the kernel closes them
//     with the process, and the next start removes the files;
//   - the log.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// fileSystem is the machine's, with names for what the state file's store does to it.
func (a Around) fileSystem() store.FS {
	if a == nil {
		return store.OS{}
	}
	return namedFS{a}
}

type namedFS struct{ around Around }

func (f namedFS) ReadFile(name string) ([]byte, error) { return store.OS{}.ReadFile(name) }

func (f namedFS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return f.around("save write", func() error { return store.OS{}.WriteFile(name, data, mode) })
}

// Rename either replaces the state file or puts something aside that is in its way.
func (f namedFS) Rename(from, to string) error {
	point := "save aside"
	if strings.HasSuffix(to, "/"+stateFile) {
		point = "save replace"
	}
	return f.around(point, func() error { return store.OS{}.Rename(from, to) })
}

func (f namedFS) Remove(name string) error {
	return f.around("save remove", func() error { return store.OS{}.Remove(name) })
}
