package api

// hold counts the connections that asked to assign one attachment and are still open. A runtime asks again when it lost
// patience with an earlier plugin, whose connection may end later than the new one began: only the last to leave gives
// the assignment up, and only if none of them was told that it is done.
type hold struct {
	connections int
	settled     bool // done was accepted, or the attachment was done before (Repeat)
}

// take notes that one more connection asks for an attachment. It comes before the Allocator is asked, so that another
// connection's end cannot give up what this one is about to receive.
func (s *Server) take(a Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[a] == nil {
		s.holds[a] = &hold{}
	}
	s.holds[a].connections++
}

// settle notes that an attachment is a live pod's, or with false that it was released.
func (s *Server) settle(a Attachment, settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds[a]; h != nil {
		h.settled = settled
	}
}

// leave notes that a connection is gone and tells whether the assignment must be given up. The lock is released before
// the Allocator hears of it: an Assign that slips in between is refused its done, and the runtime asks again.
func (s *Server) leave(a Attachment) (abort bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[a]
	h.connections--
	if h.connections > 0 {
		return false
	}
	delete(s.holds, a)
	return !h.settled
}
