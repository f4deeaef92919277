// Package netlab is the kit of network namespaces that everything here is tested in.
//
// It owns how a program gets into namespaces of its own (Isolate), how named namespaces are made and entered (Namespace),
// and the few kinds of link, address, route and neighbour entry that a test world is made of. It never touches the network
// of the machine: after Isolate there is nothing of the machine left to touch, and every call that changes something takes
// the namespace it changes. It knows nothing of EC2 or Kubernetes.
//
// Start reading at Isolate, then Namespace. A test package with real namespaces has
//
//	func TestMain(m *testing.M) { netlab.Main(m) }
//
// and runs as root and as an ordinary user alike.
package netlab
