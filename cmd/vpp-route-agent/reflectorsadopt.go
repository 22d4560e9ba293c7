package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/reflectors"
)

// adoptView is what adopt --dry-run shows.
type adoptView struct {
	reflector.Adoption
	// Then are the steps that the controller takes once the goal is reflectors, InTheWay what
	// keeps it from them.
	Then     []reflector.PreviewStep `json:"then"`
	InTheWay []string                `json:"inTheWay"`
}

func reflectorsAdopt() *cobra.Command {
	var dryRun, asJSON, changeID bool
	c := &cobra.Command{
		Use:   "adopt",
		Short: "Hand over the route reflectors that people have set up to the controller",
		Long: `Hand over the route reflectors that people have set up to the controller: Nodes
with a cluster ID, and the BGPPeers that give them their sessions. What a person has made is never
changed without this command.

It writes itself, in one transaction: label and annotation of each reflector, and the controller's
own BGPPeer beside the present ones. No session changes by that. The controller takes the other
steps, each through its gates, once the goal is reflectors: it deletes the BGPPeers that its own
replaces, changes the cluster ID where that is 0.0.0.0, and keeps as many reflectors as the rules
say. What it cannot take over is named, and then nothing is written.

The cluster ID 0.0.0.0 stands for the router ID where BIRD reads it. To change it costs what
--dry-run says, and needs --change-cluster-id.

Exit status 1 says that nothing was written, and why.`,
		Example: `  vpp-route-agent reflectors adopt --dry-run
  vpp-route-agent reflectors adopt
  vpp-route-agent reflectors migrate --to reflectors`,
	}
	outputFlag(c, &asJSON)
	f := c.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "show what would be written and follow, and write nothing")
	f.BoolVar(&changeID, "change-cluster-id", false,
		"accept what it costs to change the cluster ID 0.0.0.0")
	return deskCommand(c, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		if asJSON && !dryRun {
			return usageError{errors.New("-o json goes with --dry-run")}
		}
		if dryRun {
			return previewAdoption(cmd, desk, asJSON)
		}
		return adopt(cmd, desk, changeID)
	})
}

func adopt(cmd *cobra.Command, desk *reflectors.Desk, changeID bool) error {
	var read reflectors.View
	var a reflector.Adoption
	sayCost := sync.OnceFunc(func() { // before anything is written
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", a.Cost)
	})
	err := desk.Change(cmd.Context(), func(v reflectors.View) (c reflectors.Changes, err error) {
		if a, err = adoptionOf(v); err != nil {
			return c, err
		}
		read = v
		switch {
		case len(a.Obstacles) > 0:
			return c, refuse("cannot be taken over: %s", strings.Join(a.Obstacles, "; "))
		case a.Cost != "" && !changeID:
			return c, refuse("%s Say --change-cluster-id", a.Cost)
		case a.Cost != "":
			sayCost()
		}
		return reflectors.Changes{Goal: &a.Goal, Adopted: a.Writes}, nil
	})
	if err != nil {
		return err
	}
	a.Cost = ""
	adopted, err := viewOf(read, a)
	if err != nil {
		return err
	}
	return printAdoption(cmd.OutOrStdout(), adopted)
}

// adoptionOf says what can be taken over.
func adoptionOf(v reflectors.View) (a reflector.Adoption, err error) {
	if v.BadGoal != nil {
		return a, refusal{v.BadGoal}
	}
	a, err = reflector.NewAdoption(v.World, v.Goal)
	if err != nil {
		return a, refuse("the configuration in the goal: %w", err)
	}
	return a, nil
}

// viewOf adds what the controller does then.
func viewOf(v reflectors.View, a reflector.Adoption) (adoptView, error) {
	out := adoptView{a, []reflector.PreviewStep{}, []string{}}
	if len(a.Obstacles) == 0 {
		after := a.After(v.World)
		p, err := reflector.NewPreview(after, a.Goal.Migrate(after, reflector.Reflectors))
		if err != nil {
			return out, refuse("the configuration in the goal: %w", err)
		}
		out.Then, out.InTheWay = p.Steps, p.Obstacles
	}
	return out, nil
}

func previewAdoption(cmd *cobra.Command, desk *reflectors.Desk, asJSON bool) error {
	v, err := look(cmd, desk)
	if err != nil {
		return err
	}
	adoption, err := adoptionOf(v)
	if err != nil {
		return err
	}
	a, err := viewOf(v, adoption)
	if err != nil {
		return err
	}
	print := printAdoption
	if asJSON {
		print = func(w io.Writer, a adoptView) error { return printJSON(w, a) }
	}
	if err := print(cmd.OutOrStdout(), a); err != nil {
		return err
	}
	if len(a.Obstacles) > 0 {
		return errSilent
	}
	return nil
}

func printAdoption(w io.Writer, a adoptView) error {
	b := &strings.Builder{}
	for _, o := range a.Obstacles {
		fmt.Fprintf(b, "! cannot be taken over: %s\n", o)
	}
	if len(a.Obstacles) == 0 {
		fmt.Fprintf(b, "Reflectors: %s, with the cluster ID %s\n", firstOf(a.Reflectors),
			a.ClusterID)
		fmt.Fprintln(b, "Written now, which changes no session:")
		for _, c := range a.Changes {
			fmt.Fprintf(b, "  %s\n", c)
		}
		then := "Then, by the controller:"
		if !isGoal(a.Goal) {
			then = "Then, by the controller, after `reflectors migrate --to reflectors`:"
		}
		fmt.Fprintln(b, then)
		for i, s := range a.Then {
			fmt.Fprintf(b, "  %d. %s\n", i+1, s.Does)
		}
		for _, o := range a.InTheWay {
			fmt.Fprintf(b, "  ! in the way: %s\n", o)
		}
	}
	if a.Cost != "" {
		fmt.Fprintf(b, "Cost: %s\n", a.Cost)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
