package main

import (
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// samplesOf is "sample PAGE FILE...": the page of docs/ shows each file whole, between fences.
func samplesOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sample PAGE FILE...")
	}
	page, err := os.ReadFile(sourceDir + "/../../docs/" + args[0])
	ts.Check(err)
	for _, file := range args[1:] {
		if !strings.Contains(string(page), "\n"+ts.ReadFile(file)+"```\n") {
			ts.Fatalf("docs/%s does not show %s as it is", args[0], file)
		}
	}
}
