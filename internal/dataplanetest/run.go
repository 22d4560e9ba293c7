package dataplanetest

import "testing"

// Run runs every case of the suite on s, one after another, and says on what and how many.
func Run(t *testing.T, s Setup) {
	ran := 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if why, lacks := s.Lacks[c.needs]; lacks {
				t.Skipf("%s has no %s: %s", s.Name, c.needs, why)
			}
			c.run(t, newBench(t, &s))
		})
		ran++
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
	t.Logf("data plane: %s, %d cases", s.Name, ran)
}
